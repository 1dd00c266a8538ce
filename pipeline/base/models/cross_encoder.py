"""A sentence-transformers `CrossEncoder` with one output, which scores pairs of texts on this machine."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.models.local import architectures, locate, versioned_name
from darklode.pipeline.base.models.running import RunningModel
from darklode.pipeline.base.types import Doubles
from darklode.schemas.pooling import LocalModel


class CrossEncoderModel:
    """A cross-encoder, loaded at its first use.

    Args:
        settings: model, device, batch size and maximum tokens.

    Raises:
        SettingsError: a model name without its owner.
    """

    def __init__(self, settings: LocalModel) -> None:
        self._settings = settings
        self._running = RunningModel(settings, "CrossEncoder")
        if "/" not in settings.model and locate(settings) is None:
            raise SettingsError(
                f"cross-encoder {settings.model}: name a folder, or a model in full (cross-encoder/NAME)"
            )

    @cached_property
    def versioned_name(self) -> str:
        """Model with revision; downloads a model whose revision is unknown.

        Raises:
            MissingPart: a package or the model is missing.
        """
        try:
            return versioned_name(self._settings)
        except MissingPart:
            assert self._model
            return versioned_name(self._settings)

    @property
    def pairs_per_pass(self) -> int:
        """Pairs in a forward pass on all devices."""
        return self._running.inputs_per_pass

    @cached_property
    def _model(self) -> Any:
        model = self._running.model
        location = locate(self._settings)
        architecture_names = architectures(location.folder) if location else []
        # Without this head sentence-transformers silently initializes a random one.
        if model.num_labels != 1 or not any(name.endswith("ForSequenceClassification") for name in architecture_names):
            raise SettingsError(f"model {self._settings.model} is not a cross-encoder with a single score")
        return model

    def scores(self, pairs: list[tuple[str, str]], *, as_probabilities: bool) -> Doubles:
        """Score pairs of query and text.

        Args:
            pairs: a pass processes `pairs_per_pass` of them.
            as_probabilities: the sigmoid of the model's output; otherwise the output (logit) itself.

        Returns:
            Shape (len(pairs),).

        Raises:
            MissingPart: a package, the model or the GPU is missing, or the model needs custom code.
            SettingsError: the model does not fit the settings, or has not exactly one output.
        """
        model = self._model
        from torch.nn import Identity, Sigmoid

        activation = Sigmoid() if as_probabilities else Identity()
        return np.asarray(model.predict(pairs, activation_fn=activation, **self._running.options), dtype=np.float64)
