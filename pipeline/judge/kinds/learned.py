"""Learned judge: a logistic regression on features of a run's rankings, trained on human labels
(`pipeline/judge/features.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.judge.kinds import Builder, JudgeKind
from darklode.schemas.settings import CacheSettings


class LearnedSettings(JudgeKind):
    """Logistic regression on retrieval scores and ranks, text overlap and lengths, trained on human labels."""

    LEARNS: ClassVar[bool] = True
    HAS_SCORES: ClassVar[bool] = True
    READS: ClassVar[tuple[str, ...]] = ("rankings",)
    JUDGES_NEW_TEXTS: ClassVar[bool] = False

    kind: Literal["learned"] = "learned"

    @model_validator(mode="before")
    @classmethod
    def _requires_human_labels(cls, value: object) -> object:
        """Require human labels; fit the threshold to them unless a number is set."""
        if not isinstance(value, Mapping):
            return value
        if value.get("human_labels") is None:
            raise ValueError(
                "kind learned needs judge.human_labels, a CSV of human labels; it cannot be a panel member"
            )
        if value.get("panel"):
            raise ValueError("kind learned cannot have a judge.panel: panels are not trained")
        return {"threshold": "fitted", **value}

    def builder(self, _cache_settings: CacheSettings) -> Builder:
        """One judge per tenant, untrained.

        Raises:
            SettingsError: the run has no rankings, as a mined log.
        """
        from darklode.pipeline.base.chunk_texts import TenantChunks
        from darklode.pipeline.judge.features import RankingFeatures
        from darklode.pipeline.judge.logistic import LogisticJudge

        def build(chunks: TenantChunks, threshold: float) -> LogisticJudge:
            if "rankings" not in chunks.tables:
                raise SettingsError(
                    "judge.kind learned needs the rankings of `darklode build`, which a mined log does not have"
                )
            features = RankingFeatures(chunks)
            return LogisticJudge("learned-2", features, None, threshold, features.prior_variance)

        return build


KIND = LearnedSettings
