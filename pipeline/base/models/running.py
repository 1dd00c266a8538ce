"""A sentence-transformers model on the devices of its settings, loaded at its first use."""

from __future__ import annotations

import weakref
from functools import cached_property
from typing import Any

from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import open_model
from darklode.pipeline.base.models.local import ModelClass
from darklode.schemas.pooling import LocalModel


class RunningModel:
    """A model of one of sentence-transformers' classes; with several GPUs, each runs a copy in its own process.

    Models with custom code are refused; the network is used only for a model that is neither a folder nor completely
    cached.

    Args:
        settings: model, device, batch size and maximum tokens.
        model_class: the class that loads it.
    """

    def __init__(self, settings: LocalModel, model_class: ModelClass) -> None:
        self.settings, self._model_class = settings, model_class

    @cached_property
    def _devices(self) -> list[str]:
        return devices(self.settings.device)

    @property
    def inputs_per_pass(self) -> int:
        """Texts or pairs in a forward pass on all devices."""
        return self.settings.batch_size * len(self._devices)

    @cached_property
    def model(self) -> Any:
        """The model on the first device.

        Raises:
            MissingPart: a package, the model or the GPU is missing, or the model needs custom code.
            SettingsError: the model does not fit the settings.
        """
        return open_model(self.settings, self._devices[0], self._model_class)

    @property
    def options(self) -> dict[str, Any]:
        """Options of sentence-transformers' `encode` and `predict`."""
        return {"batch_size": self.settings.batch_size, "pool": self._pool, "show_progress_bar": False}

    def encode(self, texts: list[str], *, queries: bool, **options: Any) -> Any:
        """What the model's query or document side gives for texts, in its own type.

        Args:
            texts: texts to encode.
            queries: use the query side.
            options: more options of sentence-transformers' `encode`.

        Raises:
            MissingPart: see `model`.
            SettingsError: see `model`.
        """
        encode = self.model.encode_query if queries else self.model.encode_document
        return encode(texts, **options, **self.options)

    @cached_property
    def _pool(self) -> Any:
        if len(self._devices) == 1:
            return None
        pool = self.model.start_multi_process_pool(self._devices)
        weakref.finalize(self, type(self.model).stop_multi_process_pool, pool)
        return pool
