"""The judge that is a small encoder: the cosine of query and chunk, see `pipeline/judge/cosine.py`."""

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
from darklode.schemas.settings import CacheSettings, Settings


class EncoderJudgeSettings(JudgeKind):
    """An encoder of `encoders`: the probability is a logistic function of the cosine of query and chunk."""

    LEARNS: ClassVar[bool] = True

    kind: Literal["encoder"] = "encoder"
    encoder: str = Field("", description="Name of the encoder in `encoders`.")
    _encoder: EncoderKind | None = PrivateAttr(None)
    _kept: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _is_cut_where_people_say(cls, value: object) -> object:
        """Where positives are rare, what people taught seldom reaches one half: labels fit the threshold, too."""
        if isinstance(value, Mapping) and value.get("human_labels") is not None and not value.get("panel"):
            return {"threshold": "fitted", **value}
        return value

    @model_validator(mode="after")
    def _has_an_encoder(self) -> Self:
        if not self.encoder:
            raise ValueError("kind encoder needs judge.encoder, a name in encoders")
        return self

    def with_settings(self, settings: Settings) -> Self:
        """See `JudgeKind`: it is told what the name means, and how vectors are kept."""
        resolved = self.model_copy()
        resolved._encoder = self._find_encoder(settings.encoders)
        resolved._kept = settings.cache.vector_dtype
        return resolved

    def _find_encoder(self, encoders: Mapping[str, EncoderSettings]) -> EncoderKind:
        if self.encoder not in encoders:
            hint = nearest(self.encoder, list(encoders)) if encoders else "encoders is empty"
            raise SettingsError(f"judge.encoder: there is no encoder {self.encoder}; {hint}")
        return as_kind(encoders[self.encoder], EncoderKind)

    @property
    def _resolved_encoder(self) -> EncoderKind:
        assert self._encoder, "only `configured` knows what the encoder's name means"
        return self._encoder

    def builder(self, cache_settings: CacheSettings) -> Builder:
        """The same judge for every tenant, until people teach it."""
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
        """See `JudgeKind`; the encoder counts by its id and the precision of its vectors, not by its name."""
        return super().identity | {"encoder": self._resolved_encoder.encoder_id(), "kept": self._kept}

    def fetch(self) -> None:
        self._resolved_encoder.fetch()

    def missing(self) -> list[str]:
        """What the encoder lacks."""
        return self._resolved_encoder.missing()


KIND = EncoderJudgeSettings
