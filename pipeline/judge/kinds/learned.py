"""The judge that people's labels make: a logistic regression over what the run says of a pair, see `findings.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.judge.kinds import Builder, JudgeKind
from darklode.schemas.settings import CacheSettings


class LearnedSettings(JudgeKind):
    """A small model of the retrievers' scores and ranks, words and lengths, taught by human labels."""

    LEARNS: ClassVar[bool] = True
    READS: ClassVar[tuple[str, ...]] = ("rankings",)

    kind: Literal["learned"] = "learned"

    @model_validator(mode="before")
    @classmethod
    def _has_a_teacher(cls, value: object) -> object:
        """See also the encoder's: the labels fit the threshold, unless a number is given."""
        if not isinstance(value, Mapping):
            return value
        if value.get("human_labels") is None:
            raise ValueError(
                "kind learned needs judge.human_labels, a CSV of human labels; it cannot be a panel's member"
            )
        if value.get("panel"):
            raise ValueError("kind learned judges alone: leave judge.panel out, which cannot be taught")
        return {"threshold": "fitted", **value}

    def builder(self, _cache_settings: CacheSettings) -> Builder:
        """One judge a tenant, which knows nothing until it is taught.

        Raises:
            SettingsError: the pairs are not those of a benchmark's pool.
        """
        from darklode.pipeline.base.chunk_texts import TenantChunks
        from darklode.pipeline.judge.features import RankingFeatures
        from darklode.pipeline.judge.logistic import LogisticJudge

        def build(chunks: TenantChunks, threshold: float) -> LogisticJudge:
            if "rankings" not in chunks.tables:
                raise SettingsError("judge.kind learned reads the lists of `darklode build`: a mined log has none")
            return LogisticJudge("learned-1", RankingFeatures(chunks), None, threshold)

        return build


KIND = LearnedSettings
