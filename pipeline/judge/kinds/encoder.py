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
    """An encoder of `encoders`: a pair is as likely relevant as the cosine of query and chunk says."""

    LEARNS: ClassVar[bool] = True

    kind: Literal["encoder"] = "encoder"
    encoder: str = Field("", description="its name in `encoders`")
    _encoder: EncoderKind | None = PrivateAttr(None)
    _kept: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _is_cut_where_people_say(cls, given: object) -> object:
        """Where positives are rare, what people taught seldom reaches one half: labels fit the threshold, too."""
        if isinstance(given, Mapping) and given.get("human") is not None and not given.get("panel"):
            return {"threshold": "fitted", **given}
        return given

    @model_validator(mode="after")
    def _names_what_it_needs(self) -> Self:
        if not self.encoder:
            raise ValueError("kind encoder needs judge.encoder, a name in encoders")
        return self

    def configured(self, settings: Settings) -> Self:
        """See `JudgeKind`: it is told what the name means, and how vectors are kept."""
        known = self.model_copy()
        known._encoder = self._named(settings.encoders)
        known._kept = settings.cache.dtype
        return known

    def _named(self, encoders: Mapping[str, EncoderSettings]) -> EncoderKind:
        if self.encoder not in encoders:
            said = nearest(self.encoder, list(encoders)) if encoders else "encoders is empty"
            raise SettingsError(f"judge.encoder: there is no encoder {self.encoder}; {said}")
        return as_kind(encoders[self.encoder], EncoderKind)

    @property
    def _known(self) -> EncoderKind:
        assert self._encoder, "only `configured` knows what the encoder's name means"
        return self._encoder

    def builder(self, cache_settings: CacheSettings) -> Builder:
        """The same judge for every tenant, until people teach it."""
        from darklode.pipeline.base.memory.vectors import EmbeddingCache
        from darklode.pipeline.judge.cosine import Cosine, calibration
        from darklode.pipeline.judge.logistic import LogisticJudge
        from darklode.pipeline.retrieve.encoders.deferred import Deferred

        encoder = Deferred(self._known, cache_settings.root)
        cosine = Cosine(encoder, EmbeddingCache(cache_settings.root, cache_settings.dtype))
        model = calibration(encoder.encoder_id)
        return lambda _chunks, threshold: LogisticJudge("encoder-1", cosine, model, threshold)

    @property
    def identity(self) -> dict[str, Any]:
        """See `JudgeKind`; the encoder counts by its id and the precision of its vectors, not by its name."""
        return super().identity | {"encoder": self._known.encoder_id(), "kept": self._kept}

    def fetch(self) -> None:
        """See `JudgeKind`."""
        self._known.fetch()

    def missing(self) -> list[str]:
        """What the encoder lacks."""
        return self._known.missing()


KIND = EncoderJudgeSettings
