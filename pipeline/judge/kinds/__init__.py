"""Kinds of judges, one per file: settings, construction, identity, cost, and what is missing on this machine."""

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
"""Builds the judge of a tenant's chunks for a threshold."""


class JudgeKind(MemberSettings):
    """Settings of a kind of judge, and its factory.

    Attributes:
        LEARNS: its judges are `TrainableJudge`s.
        READS: tables that its judges read besides queries, chunks and pool.
        JUDGES_NEW_TEXTS: a reply depends on texts alone, so that its judges can judge pairs that the run does not have.
        IS_PROBED: a build probes its judges.
    """

    LEARNS: ClassVar[bool] = False
    JUDGES_NEW_TEXTS: ClassVar[bool] = True
    IS_PROBED: ClassVar[bool] = False
    READS: ClassVar[tuple[str, ...]] = ()

    def with_settings(self, _settings: Settings) -> Self:
        """A copy with references to other sections resolved, such as an encoder's name."""
        return self

    @abstractmethod
    def builder(self, cache_settings: CacheSettings) -> Builder:
        """Factory of the judges; a judge that is not fitted on chunks may serve all tenants.

        Args:
            cache_settings: where paid replies are cached.
        """

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a verdict, for fingerprints: the kind's keys except those marked `NoRow`."""
        beside = JudgeSettings.model_fields.keys() - MemberSettings.model_fields.keys()
        return {name: value for name, value in self.decisive().items() if name not in beside}

    @property
    def asked(self) -> tuple[JudgeKind, ...]:
        """The judges that reply for this one: itself, unless it is a cascade."""
        return (self,)

    def with_reversed_examples(self) -> Self | None:
        """This judge with its few-shot examples in reverse order; None if it has fewer than two."""
        return None

    def fetch(self) -> None:
        """Download what the judge needs, such as a model, so that its identity is known.

        Raises:
            MissingPart: it is not available.
        """

    def estimate(self, _tables: Tables, _cache_settings: CacheSettings, _seed: int) -> Estimate | None:
        """Estimated cost and time of judging a run's pool; None for a free local judge.

        Args:
            _tables: must contain `queries`, `chunks` and `pool`.
            _cache_settings: where replies are cached, including those of the sample.
            _seed: random seed of the sample.
        """
        return None


class LedgerKind(JudgeKind):
    """A kind whose replies are expensive: each is written to the ledger on arrival; no label is requested again."""

    @abstractmethod
    def source(self, cache_settings: CacheSettings) -> StreamingJudge:
        """The judge of pairs that are missing in the ledger.

        Args:
            cache_settings: where spending is recorded.
        """

    @property
    def max_workers(self) -> int | None:
        """Maximum number of concurrent workers; None: no limit."""
        return None

    def portion(self, _cache_settings: CacheSettings, _share: float, _at_once: int) -> Self:
        """This judge for one of several workers.

        Args:
            _cache_settings: where spending is recorded.
            _share: this worker's share of the pairs, 0 to 1.
            _at_once: number of concurrent workers.
        """
        return self

    def max_attempts_in_all(self) -> int:
        """Maximum attempts per pair with unreadable replies, over all runs."""
        return 1

    def own_threshold(self) -> float | None:
        """The threshold of the source's labels; None if its labels do not depend on a threshold."""
        return None

    def builder(self, cache_settings: CacheSettings) -> Builder:
        """One judge for all tenants; a threshold other than the source's is applied to the ledger's probabilities,
        without calls.
        """
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
