"""Judges, a file each: a kind's settings, how it is built, what names it, what it costs and what it lacks here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from darklode.schemas.judging import JudgeSettings, MemberSettings
from darklode.schemas.settings import CacheSettings, Settings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.base.chunk_texts import TenantChunks
    from darklode.pipeline.judge.estimate import Estimate
    from darklode.pipeline.judge.port import Judge, StreamingJudge

Builder = Callable[["TenantChunks", float], "Judge"]
"""Builds the judge of a tenant's chunks that calls a pair relevant from a probability on."""


class JudgeKind(MemberSettings):
    """Settings of one kind of judge, and how they become a judge.

    Attributes:
        LEARNS: its judges are `Learner`s.
        READS: tables of the run that its judges read besides queries, chunks and pool.
    """

    LEARNS: ClassVar[bool] = False
    READS: ClassVar[tuple[str, ...]] = ()

    def with_settings(self, _settings: Settings) -> Self:
        """The kind with what other sections say of it, such as what the names mean that it gives."""
        return self

    @abstractmethod
    def builder(self, cache_settings: CacheSettings) -> Builder:
        """Builds judges; one that is not fitted on the chunks may serve all tenants.

        Args:
            cache_settings: where a judge that pays per pair keeps its replies.
        """

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides a verdict, for fingerprints: the kind's keys but those marked `NoRow`."""
        beside = JudgeSettings.model_fields.keys() - MemberSettings.model_fields.keys()
        return {name: value for name, value in self.decisive().items() if name not in beside}

    def fetch(self) -> None:
        """Bring what it needs onto this machine, so that its identity is known: a model of the hub, say.

        Raises:
            MissingPart: it cannot be had.
        """

    def estimate(self, _tables: Tables, _cache_settings: CacheSettings, _seed: int) -> Estimate | None:
        """What judging a run's pool will take; None where that is nothing but time.

        Args:
            _tables: hold `queries`, `chunks` and `pool`.
            _cache_settings: where replies are kept, those of a sample, too.
            _seed: of the sample.
        """
        return None


class LedgerKind(JudgeKind):
    """A kind whose replies are worth keeping: each goes to the ledger as it comes, and is never asked for twice."""

    @abstractmethod
    def source(self, cache_settings: CacheSettings) -> StreamingJudge:
        """Who judges the pairs that the ledger lacks.

        Args:
            cache_settings: where a judge whose calls cost keeps what it spent.
        """

    @property
    def max_workers(self) -> int | None:
        """How many workers at once it can serve; None: any number."""
        return None

    def portion(self, _cache_settings: CacheSettings, _share: float, _at_once: int) -> Self:
        """The same judge for one of several workers.

        Args:
            _cache_settings: where it keeps what it spent.
            _share: of all that they ask, 0 to 1.
            _at_once: how many ask at once.
        """
        return self

    def max_attempts_in_all(self) -> int:
        """How often an unreadable reply is worth asking for, over all runs."""
        return 1

    def own_threshold(self) -> float | None:
        """The threshold by which the source labels; None: its labels follow no probability."""
        return None

    def builder(self, cache_settings: CacheSettings) -> Builder:
        """The same judge for every tenant; another threshold than the source's own costs no call."""
        from darklode.pipeline.judge.ledger import Ledger
        from darklode.pipeline.judge.ledger_judge import LedgerJudge
        from darklode.pipeline.judge.threshold import Thresholded

        @cache
        def with_ledger() -> Judge:
            return LedgerJudge(self.source(cache_settings), Ledger(cache_settings.root), self.max_attempts_in_all())

        @cache
        def build_judge(threshold: float) -> Judge:
            return with_ledger() if threshold == self.own_threshold() else Thresholded(with_ledger(), threshold)

        return lambda _chunks, threshold: build_judge(threshold)
