"""Cross-encoder judge: a model scores query and chunk together."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from darklode.pipeline.base.models.cross_encoder import CrossEncoderModel
from darklode.pipeline.base.models.loading import fetch_model
from darklode.pipeline.base.models.local import missing_for, require_tenant, versioned_name
from darklode.pipeline.judge.cascade import distilled_record
from darklode.pipeline.judge.kinds import Builder, LedgerKind
from darklode.pipeline.judge.pair_scores import PairScoringJudge
from darklode.pipeline.retrieve.encoders.port import identity
from darklode.schemas.paths import FolderOrName
from darklode.schemas.pooling import LocalModel
from darklode.schemas.section import Share
from darklode.schemas.settings import CacheSettings
from darklode.schemas.shared import LocalModelSection, ModelPath

if TYPE_CHECKING:
    from darklode.pipeline.base.chunk_texts import TenantChunks
    from darklode.pipeline.judge.port import Judge

DEFAULT_THRESHOLD = 0.5
"""Minimum probability of a relevant label for a model without a threshold of its own."""


class CrossEncoderSettings(LocalModelSection, LedgerKind):
    """A cross-encoder on this machine's GPU or CPU."""

    HAS_SCORES: ClassVar[bool] = True

    kind: Literal["cross_encoder"] = "cross_encoder"
    model: FolderOrName[str] = Field("", description=ModelPath)
    # None: the model's own. A wider type than the base's is safe, because settings are frozen.
    threshold: Share | Literal["fitted"] | None = Field(  # type: ignore[assignment]
        None,
        description="Minimum probability of a relevant label. null: that of a model made by `judge distil`, else 0.5. "
        "fitted: the threshold that agrees best with judge.human_labels.",
    )

    @model_validator(mode="after")
    def _requires_model(self) -> Self:
        if not self.model:
            raise ValueError("kind cross_encoder needs judge.model, the name of the model")
        return self

    @property
    def cut(self) -> float:
        """The threshold as a number: the setting's, the model's if `judge distil` made it, or .5."""
        if isinstance(self.threshold, float):
            return self.threshold
        return float(distilled_record(self.model).get("threshold", DEFAULT_THRESHOLD))

    @property
    def local(self) -> LocalModel:
        """The settings that load the model."""
        return LocalModel(**self.model_dump(include={"model", *LocalModelSection.model_fields}))

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a verdict; a model in a local folder by the content of its files, not its path."""
        is_local = Path(self.model).expanduser().is_dir()
        return super().identity | ({"model": versioned_name(self.local)} if is_local else {})

    def builder(self, cache_settings: CacheSettings) -> Builder:
        """One judge for all tenants that the model may be used for.

        The builder raises `DoesNotFit` for others than the one that `train-reranker` trained it for.
        """
        build = super().builder(cache_settings)

        def build_checked(chunks: TenantChunks, threshold: float) -> Judge:
            require_tenant(self.local, chunks.tenant)
            return build(chunks, threshold)

        return build_checked

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
    """A `CrossEncoderModel`, whose sigmoid is the (uncalibrated) probability of relevance.

    Args:
        settings: model, device, batch size, maximum tokens and threshold.

    Raises:
        SettingsError: a model name without its owner.
    """

    def __init__(self, settings: CrossEncoderSettings) -> None:
        super().__init__(settings.cut)
        self._settings = settings.local
        self._model = CrossEncoderModel(self._settings)

    @cached_property
    def judge_id(self) -> str:
        """Model with revision, tokens, precision and threshold; downloads a model whose revision is unknown.

        Raises:
            MissingPart: a package or the model is missing.
        """
        name, tokens = self._model.versioned_name, self._settings.max_seq_length or "all"
        return identity("cross_encoder", name, tokens=tokens, dtype=self._settings.dtype, threshold=self._threshold)

    @property
    def _pairs_per_pass(self) -> int:
        return self._model.pairs_per_pass

    def _score(self, texts: list[tuple[str, str]]) -> NDArray[np.float64]:
        return self._model.scores(texts, as_probabilities=True)


KIND = CrossEncoderSettings
