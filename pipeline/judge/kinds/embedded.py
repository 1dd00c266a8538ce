"""The judge without a model: see `pipeline/judge/embedded.py`, which is loaded when it judges."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from darklode.pipeline.judge.kinds import Builder, JudgeKind
from darklode.schemas.section import Share
from darklode.schemas.settings import CacheSettings


class EmbeddedSettings(JudgeKind):
    """A scorer fitted on the corpus, without labels or a language model: weak, but needs nothing else."""

    kind: Literal["embedded"] = "embedded"
    threshold: Share | Literal["fitted"] = Field(
        0.25, description="Minimum probability of a relevant label; low, because the scorer gives few candidates more."
    )

    def builder(self, _cache_settings: CacheSettings) -> Builder:
        """One judge a tenant, fitted on its chunks."""
        from darklode.pipeline.base.terms import TermSpace
        from darklode.pipeline.judge.embedded import EmbeddedJudge

        return lambda chunks, threshold: EmbeddedJudge(TermSpace(chunks.batches()), threshold)


KIND = EmbeddedSettings
