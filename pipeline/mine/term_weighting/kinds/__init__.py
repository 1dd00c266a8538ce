"""Kinds of term weighters, one per file: settings, construction, and what is missing on this machine."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from darklode.schemas.mining import TermWeightingSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.mine.term_weighting.port import TermWeighter
    from darklode.schemas.settings import CacheSettings


class TermWeighterKind(TermWeightingSettings):
    """Settings of a kind of term weighter (ScalingNote's planner), and its factory.

    Attributes:
        LEARNS: whether it reads `learned_term_weights`, which `fit_term_weights` learns from documents and log.
    """

    LEARNS: ClassVar[bool] = False

    @abstractmethod
    def term_weighter(self, learned: Tables, cache_settings: CacheSettings) -> TermWeighter:
        """Build the term weighter.

        Args:
            learned: `learned_term_weights`; empty for a kind that does not learn.
            cache_settings: where a weighter that pays per query caches replies.
        """
