"""What learns: some of the teacher's own layers, or another model, with a projection to the index's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.encoders.sentence_transformers import encode_texts
from darklode.pipeline.towers.start import fit_linear_map
from darklode.pipeline.train.encoder import TrainableEncoder, layers_of
from darklode.pipeline.train.folder import modules
from darklode.pipeline.train.weights import Floats
from darklode.schemas.adaptation import AdaptSettings


class Student(TrainableEncoder):
    """A loaded encoder of which all learns but a pooler, the layers that follow the transformer included.

    Args:
        loaded: the sentence-transformers model, in float32.
        settings: prompt, cut, texts of a forward pass.
    """

    def __init__(self, loaded: Any, settings: SentenceTransformersSettings) -> None:
        super().__init__(loaded, settings, AdaptSettings(method="full"))
        for number, module in list(enumerate(loaded))[1:]:
            for name, parameter in module.named_parameters():
                self.trained[f"{number}.{name}"] = parameter.requires_grad_(True)
        self._base = self._copies()

    def initialize(self, texts: list[str], targets: Floats) -> None:
        """Its projection becomes the map of its vectors that is nearest to its teacher's.

        Args:
            texts: queries that it learns from.
            targets: their teacher's unit vectors.
        """
        from sentence_transformers import SentenceTransformer

        part = SentenceTransformer(modules=list(self.loaded)[:-1], device=str(self.loaded.device))
        inputs = encode_texts(part, self._settings, texts, queries=True)
        with torch.no_grad():
            self.loaded[-1].linear.weight.copy_(torch.from_numpy(fit_linear_map(inputs, targets)))

    @property
    def n_parameters(self) -> int:
        """How many it has, those of the tokens included."""
        return sum(parameter.numel() for parameter in self.trained.values())


def evenly_spaced(n: int, n_total: int) -> list[int]:
    """The places of n layers of `n_total`, the first and the last among them; of a single one the first.

    Raises:
        SettingsError: there are not so many.
    """
    if n > n_total:
        raise SettingsError(f"layers {n}: the model has only {n_total} layers")
    return [int(index) for index in np.linspace(0, n_total - 1, n).round()]


def keep_layers(model: nn.Module, n: int) -> None:
    """Leave a transformer n of its layers, evenly chosen.

    Args:
        model: of transformers.
        n: how many.

    Raises:
        SettingsError: it has fewer, or no list of layers that is known.
    """
    name, config = layers_of(model), model.config
    layers = model.get_submodule(name)
    assert isinstance(layers, nn.ModuleList)
    layer_numbers = evenly_spaced(n, len(layers))
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, nn.ModuleList(layers[layer_number] for layer_number in layer_numbers))
    config.num_hidden_layers = n  # type: ignore[union-attr]
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer_number] for layer_number in layer_numbers]  # type: ignore[union-attr, index]
    for number, layer_number in enumerate(layer_numbers):
        for module in layers[layer_number].modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = number  # type: ignore[assignment]


def add_projection(loaded: Any, dimensions: int) -> Any:
    """A model whose vectors have the index's numbers, by W_stu of ScalingNote, Eq. 14, at random before `begin`."""
    from sentence_transformers import SentenceTransformer

    has = loaded.encode(["dimensions"], show_progress_bar=False).shape[1]
    dense = modules().Dense(has, dimensions, bias=False, activation_function=torch.nn.Identity())
    made = SentenceTransformer(modules=[*loaded, dense], device=str(loaded.device))
    made.default_prompt_name = None
    return made
