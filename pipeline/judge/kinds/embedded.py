"""Embedded judge: no model, no labels (`pipeline/judge/embedded.py`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from darklode.pipeline.judge.kinds import Builder, JudgeKind
from darklode.schemas.section import Share
from darklode.schemas.settings import CacheSettings


class EmbeddedSettings(JudgeKind):
    """A label-free scorer fitted on the corpus; weak, and not a language model."""

    kind: Literal["embedded"] = "embedded"
    threshold: Share | Literal["fitted"] = Field(
        0.33,
        description="Minimum probability of a relevant label; low, because the scorer gives few candidates more.",
    )

    def builder(self, _cache_settings: CacheSettings) -> Builder:
        """One judge per tenant, fitted on its chunks."""
        from darklode.pipeline.base.terms import TermSpace
        from darklode.pipeline.judge.embedded import EmbeddedJudge

        return lambda chunks, threshold: EmbeddedJudge(TermSpace(chunks.batches()), threshold)


KIND = EmbeddedSettings
