"""What learns: some of the teacher's own layers, or another model, with a projection to the index's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.encoders.sentence_transformers import encode_texts
from darklode.pipeline.towers.start import mapped
from darklode.pipeline.train.encoder import Encoder, layers_of
from darklode.pipeline.train.folder import modules
from darklode.pipeline.train.weights import Floats
from darklode.schemas.adaptation import AdaptSettings


class Student(Encoder):
    """A loaded encoder of which all learns but a pooler, the layers that follow the transformer included.

    Args:
        loaded: the sentence-transformers model, in float32.
        settings: prompt, cut, texts of a forward pass.
    """

    def __init__(self, loaded: Any, settings: SentenceTransformersSettings) -> None:
        super().__init__(loaded, settings, AdaptSettings(method="full"))
        for number, module in list(enumerate(loaded))[1:]:
            for name, one in module.named_parameters():
                self.trained[f"{number}.{name}"] = one.requires_grad_(True)
        self._base = self._copies()

    def begin(self, texts: list[str], wanted: Floats) -> None:
        """Its projection becomes the map of its vectors that is nearest to its teacher's.

        Args:
            texts: queries that it learns from.
            wanted: their teacher's unit vectors.
        """
        from sentence_transformers import SentenceTransformer

        part = SentenceTransformer(modules=list(self.loaded)[:-1], device=str(self.loaded.device))
        given = encode_texts(part, self._settings, texts, queries=True)
        with torch.no_grad():
            self.loaded[-1].linear.weight.copy_(torch.from_numpy(mapped(given, wanted)))

    @property
    def numbers(self) -> int:
        """How many it has, those of the tokens included."""
        return sum(one.numel() for one in self.trained.values())


def evenly(n: int, of: int) -> list[int]:
    """The places of n layers of `of`, the first and the last among them; of a single one the first.

    Raises:
        SettingsError: there are not so many.
    """
    if n > of:
        raise SettingsError(f"layers {n}: the model has only {of} layers")
    return [int(place) for place in np.linspace(0, of - 1, n).round()]


def cut(model: nn.Module, n: int) -> None:
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
    kept = evenly(n, len(layers))
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, nn.ModuleList(layers[place] for place in kept))
    config.num_hidden_layers = n  # type: ignore[union-attr]
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[place] for place in kept]  # type: ignore[union-attr, index]
    for number, place in enumerate(kept):
        for module in layers[place].modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = number  # type: ignore[assignment]


def projected(loaded: Any, dimensions: int) -> Any:
    """A model whose vectors have the index's numbers, by W_stu of ScalingNote, Eq. 14, at random before `begin`."""
    from sentence_transformers import SentenceTransformer

    has = loaded.encode(["dimensions"], show_progress_bar=False).shape[1]
    dense = modules().Dense(has, dimensions, bias=False, activation_function=torch.nn.Identity())
    made = SentenceTransformer(modules=[*loaded, dense], device=str(loaded.device))
    made.default_prompt_name = None
    return made
