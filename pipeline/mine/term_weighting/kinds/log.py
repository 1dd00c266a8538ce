"""Term weights learned from documents and log (`pipeline/mine/term_weighting/log.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from darklode.pipeline.mine.term_weighting.kinds import TermWeighterKind

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.mine.term_weighting.log import LogTermWeighter
    from darklode.schemas.settings import CacheSettings


class LogTermWeighterKind(TermWeighterKind):
    """Term weights learned from documents and log."""

    LEARNS: ClassVar[bool] = True

    kind: Literal["log"] = "log"

    def term_weighter(self, learned: Tables, _cache_settings: CacheSettings) -> LogTermWeighter:
        from darklode.pipeline.base.artifacts import digest
        from darklode.pipeline.mine.term_weighting.log import LogTermWeighter

        return LogTermWeighter(learned.read("learned_term_weights"), digest(learned.parts("learned_term_weights")))


KIND = LogTermWeighterKind
