"""The encoder's own tensors as methods: all of them, the last layers, or LoRA."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import load_query_tower
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.encoder import START, Encoder
from darklode.pipeline.train.heads import Layers, named
from darklode.pipeline.train.loop import Course, Tell, steady
from darklode.pipeline.train.methods import SHARES, OfTask
from darklode.pipeline.train.weights import Floats, Weights
from darklode.pipeline.train.whitening import best_start
from darklode.schemas.adaptation import AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.task import Questions, Task
    from darklode.pipeline.train.vectors import Base, Frozen

RATES = {"lora": (3e-5, 1e-4, 3e-4), "full": (5e-6, 1e-5, 3e-5), "top_n": (5e-6, 1e-5, 3e-5)}


class TrainedEncoder:
    """`full`, `top_n` and `lora`, in sentence-transformers' trainer; see `Method`."""

    about = "learning rate"
    shares: Sequence[float] = SHARES

    def __init__(self, settings: AdaptSettings, base: Base) -> None:
        assert isinstance(base.encoder, SentenceTransformersSettings)
        self._settings, self._base, self._encoder = settings, base, base.encoder
        self._opened: Encoder | None = None
        self._start = OfTask(best_start)

    @property
    def tried(self) -> Sequence[float]:
        """The learning rates."""
        return self._settings.learning_rates or RATES[self._settings.method]

    def trained(self, task: Task, setting: float, seed: int, tell: Tell) -> Course:
        """See `Method`."""
        from darklode.pipeline.train.trainer import trained

        weight = self._start(task) if self._settings.start == "whitened" else None
        with steady(seed):
            encoder = self._open()
            encoder.start = None if weight is None else torch.from_numpy(weight)
            return trained(task, self._settings, setting, encoder, seed, tell)

    def vectors(self, weights: Weights, share: float, asked: Questions) -> Floats:
        """See `Method`; queries are encoded again."""
        with steady(0):
            encoder = self._opened or self._open()
            encoder.take(weights, share)
            return encoder.vectors(asked)

    def searched(self, frozen: Frozen, _weights: Weights, _share: float) -> Frozen:
        """See `Method`."""
        return frozen

    def put_into(self, loaded: Any, weights: Weights, share: float) -> Layers:
        """See `Method`; LoRA is merged, in float32."""
        dtype = next(loaded.parameters()).dtype
        encoder = Encoder(loaded.float(), self._encoder, self._settings)
        encoder.take(weights, share)
        encoder.merge()
        loaded.to(dtype)
        return _after(encoder)

    def alone(self, weights: Weights, share: float) -> dict[str, bytes]:
        """See `Method`; LoRA as peft reads it, the last layers by their names, of `full` nothing."""
        from safetensors.numpy import save

        encoder = self._opened or self._open()
        encoder.take(weights, share)
        after = named(_after(encoder))
        began = {"start.safetensors": save(after)} if after else {}
        return began | self._trained_alone(encoder)

    def _trained_alone(self, encoder: Encoder) -> dict[str, bytes]:
        from safetensors.numpy import save

        if self._settings.method == "full":
            return {}
        tensors = {name: one for name, one in encoder.state().items() if name != START}
        if self._settings.method == "top_n":
            about = json.dumps({"base": self._base.identity["encoder"]})
            return {"adapter.safetensors": save(dict(tensors), metadata={"darklode": about})}
        named = {f"base_model.model.{name.replace('.default.', '.')}": one for name, one in tensors.items()}
        config = encoder.lora_config(self._encoder.model)
        return {"adapter_config.json": config, "adapter_model.safetensors": save(named, metadata={"format": "pt"})}

    def _open(self) -> Encoder:
        """The base, in float32 whatever it is kept in."""
        settings = self._encoder.model_copy(update={"dtype": "float32"})
        self._opened = Encoder(load_query_tower(settings, devices(settings.device)[0]), settings, self._settings)
        return self._opened


def _after(encoder: Encoder) -> Layers:
    """The layer that follows an encoder that did not begin as the base."""
    if encoder.start is None:
        return []
    weight = np.ascontiguousarray(encoder.start.numpy())
    return [(weight, np.zeros(len(weight), np.float32))]
