"""Cross-encoder judge: a model scores query and chunk together."""

from __future__ import annotations

import weakref
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.models.devices import devices
from darklode.pipeline.base.models.loading import fetch_model, open_model
from darklode.pipeline.base.models.local import architectures, locate, missing_for, versioned_name
from darklode.pipeline.judge.kinds import LedgerKind
from darklode.pipeline.judge.pair_scores import PairScoringJudge
from darklode.pipeline.retrieve.encoders.port import identity
from darklode.schemas.paths import FolderOrName
from darklode.schemas.pooling import LocalModel
from darklode.schemas.settings import CacheSettings
from darklode.schemas.shared import LocalModelSection, ModelPath


class CrossEncoderSettings(LocalModelSection, LedgerKind):
    """A cross-encoder on this machine's GPU or CPU."""

    HAS_SCORES: ClassVar[bool] = True

    kind: Literal["cross_encoder"] = "cross_encoder"
    model: FolderOrName[str] = Field("", description=ModelPath)

    @model_validator(mode="after")
    def _requires_model(self) -> Self:
        if not self.model:
            raise ValueError("kind cross_encoder needs judge.model, the name of the model")
        return self

    @property
    def local(self) -> LocalModel:
        """The settings that load the model."""
        return LocalModel(**self.model_dump(include={"model", *LocalModelSection.model_fields}))

    def source(self, _cache_settings: CacheSettings) -> CrossEncoderJudge:
        return CrossEncoderJudge(self)

    def own_threshold(self) -> float:
        """The threshold of the settings, which is part of the judge's id."""
        return self.cut

    def fetch(self) -> None:
        fetch_model(self.local)

    def missing(self) -> list[str]:
        """Missing packages, model or memory."""
        return missing_for(self.local)


class CrossEncoderJudge(PairScoringJudge):
    """Sentence-transformers' `CrossEncoder` with one output, whose sigmoid is the (uncalibrated) probability of
    relevance.

    Models with custom code are refused; the network is used only for a model
    that is neither a folder nor completely cached. With several GPUs, each runs a copy of the model in its own process.

    Args:
        settings: model, device, batch size, maximum tokens and threshold.

    Raises:
        SettingsError: a model name without its owner.
    """

    def __init__(self, settings: CrossEncoderSettings) -> None:
        super().__init__(settings.cut)
        self._settings = settings.local
        if "/" not in settings.model and locate(self._settings) is None:
            raise SettingsError(
                f"cross-encoder {settings.model}: name a folder, or a model in full (cross-encoder/NAME)"
            )

    @cached_property
    def judge_id(self) -> str:
        """Model with revision, tokens, precision and threshold; downloads a model whose revision is unknown.

        Raises:
            MissingPart: a package or the model is missing.
        """
        try:
            name = versioned_name(self._settings)
        except MissingPart:
            assert self._model
            name = versioned_name(self._settings)
        tokens = self._settings.max_seq_length or "all"
        return identity("cross_encoder", name, tokens=tokens, dtype=self._settings.dtype, threshold=self._threshold)

    @property
    def _pairs_per_pass(self) -> int:
        return self._settings.batch_size * len(self._devices)

    @cached_property
    def _devices(self) -> list[str]:
        return devices(self._settings.device)

    @cached_property
    def _model(self) -> Any:
        model = open_model(self._settings, self._devices[0], "CrossEncoder")
        location = locate(self._settings)
        architecture_names = architectures(location.folder) if location else []
        # Without this head sentence-transformers silently initializes a random one.
        if model.num_labels != 1 or not any(name.endswith("ForSequenceClassification") for name in architecture_names):
            raise SettingsError(f"model {self._settings.model} is not a cross-encoder with a single score")
        return model

    @cached_property
    def _pool(self) -> Any:
        if len(self._devices) == 1:
            return None
        pool = self._model.start_multi_process_pool(self._devices)
        weakref.finalize(self, type(self._model).stop_multi_process_pool, pool)
        return pool

    def _score(self, texts: list[tuple[str, str]]) -> NDArray[np.float64]:
        from torch.nn import Sigmoid

        size = self._settings.batch_size
        scores = self._model.predict(
            texts, batch_size=size, pool=self._pool, activation_fn=Sigmoid(), show_progress_bar=False
        )
        return np.asarray(scores, dtype=np.float64)


KIND = CrossEncoderSettings
