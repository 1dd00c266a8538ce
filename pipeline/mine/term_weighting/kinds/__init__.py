"""Planners, a file each: a kind's settings, how it is built and what it lacks here."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from darklode.schemas.mining import TermWeightingSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.mine.term_weighting.port import Planner
    from darklode.schemas.settings import CacheSettings


class PlannerKind(TermWeightingSettings):
    """Settings of one kind of planner, and how they become a planner.

    Attributes:
        LEARNS: whether it plans by `planner_terms`, which the stage `fit_planner` learns from documents and log.
    """

    LEARNS: ClassVar[bool] = False

    @abstractmethod
    def planner(self, learned: Tables, cache_settings: CacheSettings) -> Planner:
        """The planner.

        Args:
            learned: `planner_terms`; without rows for a kind that does not learn.
            cache_settings: where a planner that pays per query keeps its replies.
        """
