"""The planner that was learned from documents and log: see `pipeline/mine/term_weighting/log.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from darklode.pipeline.mine.term_weighting.kinds import PlannerKind

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.mine.term_weighting.log import LogPlanner
    from darklode.schemas.settings import CacheSettings


class LogPlannerSettings(PlannerKind):
    """Term weights learned from documents and log."""

    LEARNS: ClassVar[bool] = True

    kind: Literal["log"] = "log"

    def planner(self, learned: Tables, _cache_settings: CacheSettings) -> LogPlanner:
        from darklode.pipeline.base.artifacts import digest
        from darklode.pipeline.mine.term_weighting.log import LogPlanner

        return LogPlanner(learned.read("planner_terms"), digest(learned.parts("planner_terms")))


KIND = LogPlannerSettings
