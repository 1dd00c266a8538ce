"""Encoder judge: the calibrated cosine of query and chunk (`pipeline/judge/cosine.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.kinds import Builder, JudgeKind
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.schemas.kinds import nearest
from darklode.schemas.pooling import EncoderSettings
from darklode.schemas.section import Share
from darklode.schemas.settings import CacheSettings, Settings


class EncoderJudgeSettings(JudgeKind):
    """An encoder of `encoders`: logistic calibration of the cosine of query and chunk."""

    LEARNS: ClassVar[bool] = True
    HAS_SCORES: ClassVar[bool] = True

    kind: Literal["encoder"] = "encoder"
    threshold: Share | Literal["fitted"] = Field(
        0.36,
        description="Minimum probability of a relevant label; low, because kappa is highest there: positives are rare.",
    )
    encoder: str = Field("", description="Name of the encoder in `encoders`.")
    _encoder: EncoderKind | None = PrivateAttr(None)
    _vector_dtype: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _fits_threshold_to_human_labels(cls, value: object) -> object:
        """With human labels, fit the threshold by default: if positives are rare, calibrated probabilities seldom reach
        0.5.
        """
        if isinstance(value, Mapping) and value.get("human_labels") is not None and not value.get("panel"):
            return {"threshold": "fitted", **value}
        return value

    @model_validator(mode="after")
    def _requires_encoder(self) -> Self:
        if not self.encoder:
            raise ValueError("kind encoder needs judge.encoder, a name in encoders")
        return self

    def with_settings(self, settings: Settings) -> Self:
        """A copy with the encoder's settings and the vectors' precision."""
        resolved = self.model_copy()
        resolved._encoder = self._find_encoder(settings.encoders)
        resolved._vector_dtype = settings.cache.vector_dtype
        return resolved

    def _find_encoder(self, encoders: Mapping[str, EncoderSettings]) -> EncoderKind:
        if self.encoder not in encoders:
            hint = nearest(self.encoder, list(encoders)) if encoders else "encoders is empty"
            raise SettingsError(f"judge.encoder: no encoder {self.encoder}; {hint}")
        return as_kind(encoders[self.encoder], EncoderKind)

    @property
    def _resolved_encoder(self) -> EncoderKind:
        assert self._encoder, "call `configure_judge` first: it resolves the encoder's name"
        return self._encoder

    def builder(self, cache_settings: CacheSettings) -> Builder:
        """One judge for all tenants, until it is trained on human labels."""
        from darklode.pipeline.base.memory.vectors import EmbeddingCache
        from darklode.pipeline.judge.cosine import Cosine, calibration
        from darklode.pipeline.judge.logistic import LogisticJudge
        from darklode.pipeline.retrieve.encoders.deferred import Deferred

        encoder = Deferred(self._resolved_encoder, cache_settings.root)
        cosine = Cosine(encoder, EmbeddingCache(cache_settings.root, cache_settings.vector_dtype))
        model = calibration(encoder.encoder_id)
        return lambda _chunks, threshold: LogisticJudge("encoder-1", cosine, model, threshold)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a verdict; the encoder by its id and vector precision, not its name."""
        return super().identity | {"encoder": self._resolved_encoder.encoder_id(), "kept": self._vector_dtype}

    def fetch(self) -> None:
        self._resolved_encoder.fetch()

    def missing(self) -> list[str]:
        """What is missing for the encoder."""
        return self._resolved_encoder.missing()


KIND = EncoderJudgeSettings
