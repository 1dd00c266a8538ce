"""The student: some of the teacher's layers, or another model, with a projection to the dimensions of the index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.encoders.sentence_transformers import encode_texts
from darklode.pipeline.towers.initialization import fit_linear_map
from darklode.pipeline.train.fit.trainable_encoder import TrainableEncoder, layers_of
from darklode.pipeline.train.release.modules import modules
from darklode.schemas.adaptation import AdaptSettings


class Student(TrainableEncoder):
    """A trainable encoder: all parameters except those of a pooler and, on request, of the token embeddings.

    Args:
        loaded: the sentence-transformers model in float32.
        settings: prompt, maximum length and batch size.
        frozen: path of a module of the transformer that is not trained; None: none.
    """

    n_initialization_texts = 1 << 12
    """Training texts that `initialize` is called with: those of a transformer cost a forward pass each."""

    def __init__(self, loaded: Any, settings: SentenceTransformersSettings, frozen: str | None = None) -> None:
        super().__init__(loaded, settings, AdaptSettings(method="full"))
        for name in [name for name in self.trained if frozen and name.startswith(f"{frozen}.")]:
            self.trained.pop(name).requires_grad_(False)
        for number, module in list(enumerate(loaded))[1:]:
            for name, parameter in module.named_parameters():
                self.trained[f"{number}.{name}"] = parameter.requires_grad_(True)
        self._base = self._copies()

    def initialize(self, texts: list[str], targets: Floats) -> None:
        """Initialize the projection with the map nearest to the teacher's vectors.

        Args:
            texts: training queries.
            targets: the teacher's unit vectors.
        """
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(modules=list(self.loaded)[:-1], device=str(self.loaded.device))
        inputs = encode_texts(encoder, self._settings, texts, queries=True)
        with torch.no_grad():
            self.loaded[-1].linear.weight.copy_(torch.from_numpy(fit_linear_map(inputs, targets)))

    @property
    def n_parameters(self) -> int:
        """Number of trained parameters."""
        return sum(parameter.numel() for parameter in self.trained.values())


def evenly_spaced(n: int, n_total: int) -> list[int]:
    """Indices of n evenly spaced layers of `n_total`, first and last included; the first if n is 1.

    Raises:
        SettingsError: there are fewer layers.
    """
    if n > n_total:
        raise SettingsError(f"layers {n}: the model has only {n_total} layers")
    return [int(index) for index in np.linspace(0, n_total - 1, n).round()]


def first_and_last(n: int, n_total: int) -> list[int]:
    """Indices of the first and the last n − 1 of `n_total` layers; the last one if n is 1.

    Those of MiniLM begin nearer to the teacher than evenly spaced ones: see `benchmarks/students.py`.

    Raises:
        SettingsError: there are fewer layers.
    """
    if n > n_total:
        raise SettingsError(f"layers {n}: the model has only {n_total} layers")
    return [*([0] if n > 1 else []), *range(n_total - max(n - 1, 1), n_total)]


def keep_layers(model: nn.Module, n: int, choose: Callable[[int, int], list[int]] = evenly_spaced) -> None:
    """Keep n layers of a transformer.

    Args:
        model: a transformers model.
        n: number of layers.
        choose: gives the indices of n of a total number of layers.

    Raises:
        SettingsError: it has fewer, or no known list of layers.
    """
    name, config = layers_of(model), model.config
    layers = model.get_submodule(name)
    assert isinstance(layers, nn.ModuleList)
    layer_numbers = choose(n, len(layers))
    parent, _, list_name = name.rpartition(".")
    setattr(
        model.get_submodule(parent), list_name, nn.ModuleList(layers[layer_number] for layer_number in layer_numbers)
    )
    config.num_hidden_layers = n  # type: ignore[union-attr]
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer_number] for layer_number in layer_numbers]  # type: ignore[union-attr, index]
    for number, layer_number in enumerate(layer_numbers):
        for module in layers[layer_number].modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = number  # type: ignore[assignment]


def add_projection(loaded: Any, dimensions: int) -> Any:
    """Append W_stu of ScalingNote, Eq. 14, if the dimensions differ; random until `initialize`."""
    from sentence_transformers import SentenceTransformer

    n_pooled = loaded.encode(["dimensions"], show_progress_bar=False).shape[1]
    dense = modules().Dense(n_pooled, dimensions, bias=False, activation_function=torch.nn.Identity())
    student = SentenceTransformer(modules=[*loaded, dense], device=str(loaded.device))
    student.default_prompt_name = None
    return student
