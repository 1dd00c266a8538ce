"""Methods that train tensors of the encoder: all of them, the last layers, or LoRA."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import load_query_tower
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.fit.eval_point import EvalPoint
from darklode.pipeline.train.fit.heads import name_tensors
from darklode.pipeline.train.fit.methods import INTERPOLATION_SHARES, PerTaskCache
from darklode.pipeline.train.fit.trainable_encoder import START_BIAS, START_TENSOR, TrainableEncoder
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.pipeline.train.fit.whitening import Whitening, best_uncentered, best_whitening, whitenings
from darklode.pipeline.train.types import TENSORS_FILE, Layers, OnStep, Weights
from darklode.schemas.adaptation import AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import QuerySet, Task
    from darklode.pipeline.train.data.vectors import FrozenIndex

DEFAULT_LEARNING_RATES = {"lora": (3e-4,), "full": (3e-5,), "top_n": (5e-6, 1e-5, 3e-5)}
"""Learning rates to try by default, by method; few, because each takes minutes to hours."""


class EncoderMethod:
    """`full`, `top_n` and `lora`, with the trainer of sentence-transformers."""

    setting_name = "learning rate"
    shares: Sequence[float] = INTERPOLATION_SHARES

    def __init__(self, settings: AdaptSettings, base: BaseEncoder) -> None:
        assert isinstance(base.encoder, SentenceTransformersSettings)
        self._settings, self._base, self._encoder = settings, base, base.encoder
        self._opened: TrainableEncoder | None = None
        maps = PerTaskCache(lambda task: list(whitenings(task)))
        self._start = PerTaskCache(lambda task: best_uncentered(task, maps(task)))
        self._untrained = PerTaskCache(lambda task: best_whitening(task, maps(task)))

    @property
    def hyperparameters(self) -> Sequence[float]:
        """The learning rates; first 0, the untrained whitening, if training starts from one."""
        rates = self._settings.learning_rates or DEFAULT_LEARNING_RATES[self._settings.method]
        return rates if self._settings.init == "base" else (0.0, *rates)

    def fit(self, task: Task, setting: float, seed: int, on_step: OnStep) -> TrainingHistory[EvalPoint]:
        from darklode.pipeline.train.fit.encoder_trainer import train_encoder

        if not setting:
            return TrainingHistory(best_weights=_map_weights(task, self._untrained(task)))
        whitening = self._start(task) if self._settings.init != "base" else None
        with deterministic(seed):
            encoder = self._open()
            encoder.start = (
                None if whitening is None else (torch.from_numpy(whitening.weight), torch.from_numpy(whitening.bias))
            )
            return train_encoder(task, self._settings, setting, encoder, seed, on_step)

    def vectors(self, weights: Weights, share: float, queries: QuerySet) -> Floats:
        """Queries are encoded with the trained weights."""
        with deterministic(0):
            encoder = self._opened or self._open()
            encoder.restore(weights, share)
            return encoder.vectors(queries)

    def transform_index(self, frozen: FrozenIndex, _weights: Weights, _share: float) -> FrozenIndex:
        return frozen

    def apply_to_model(self, loaded: Any, weights: Weights, share: float) -> Layers:
        """LoRA is merged in float32."""
        dtype = next(loaded.parameters()).dtype
        encoder = TrainableEncoder(loaded.float(), self._encoder, self._settings)
        encoder.restore(weights, share)
        encoder.merge()
        loaded.to(dtype)
        return _start_layer(encoder)

    def export_tensors(self, weights: Weights, share: float) -> dict[str, bytes]:
        """LoRA in peft's format, last layers by their names; nothing for `full`."""
        from safetensors.numpy import save

        encoder = self._opened or self._open()
        encoder.restore(weights, share)
        after = name_tensors(_start_layer(encoder))
        start_files = {"start.safetensors": save(after)} if after else {}
        return start_files | self._trained_tensors(encoder)

    def _trained_tensors(self, encoder: TrainableEncoder) -> dict[str, bytes]:
        from safetensors.numpy import save

        if self._settings.method == "full":
            return {}
        tensors = {name: tensor for name, tensor in encoder.state().items() if name not in {START_TENSOR, START_BIAS}}
        if self._settings.method == "top_n":
            about = json.dumps({"base": self._base.identity["encoder"]})
            return {TENSORS_FILE: save(dict(tensors), metadata={"darklode": about})}
        peft_tensors = {
            f"base_model.model.{name.replace('.default.', '.')}": tensor for name, tensor in tensors.items()
        }
        config = encoder.lora_config(self._encoder.model)
        return {
            "adapter_config.json": config,
            "adapter_model.safetensors": save(peft_tensors, metadata={"format": "pt"}),
        }

    def _open(self) -> TrainableEncoder:
        """The base in float32, whatever its storage precision."""
        settings = self._encoder.model_copy(update={"dtype": "float32"})
        self._opened = TrainableEncoder(
            load_query_tower(settings, devices(settings.device)[0]), settings, self._settings
        )
        return self._opened


def _start_layer(encoder: TrainableEncoder) -> Layers:
    """The fixed linear map after an encoder that started from a whitening."""
    if encoder.start is None:
        return []
    weight, bias = (np.ascontiguousarray(tensor.numpy()) for tensor in encoder.start)
    return [(weight, bias)]


def _map_weights(task: Task, whitening: Whitening | None) -> Weights:
    """The base encoder with a whitening after it; None: with the identity."""
    eye = np.eye(task.frozen.dimensions, dtype=np.float32)
    weight, bias = (eye, np.zeros(len(eye), np.float32)) if whitening is None else (whitening.weight, whitening.bias)
    return {START_TENSOR: weight, START_BIAS: bias}
