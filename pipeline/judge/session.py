"""Judging within stages: pairs in, checked replies out, in resumable units with progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Unit
from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.judge.port import Judge, Live, check_replies

T = TypeVar("T")


class JudgingSession:
    """Runs a stage's judges while its context is open, and reports progress.

    Args:
        output: receives units and progress.
        total: amount of work.
        measure: the counter that grows to the total; None: the sum of all counters.

    Attributes:
        counts: summed facts of the units so far.
    """

    def __init__(self, output: Output, total: int, *, measure: str | None = None) -> None:
        self._output = output
        self._total = total
        self._measure = measure
        self._background = Background()
        self.counts = Counter[str]()

    def __enter__(self) -> Self:
        self._background.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._background.__exit__(kind, error, at)

    def unit(self, name: str, basis: str, work: Callable[[], Mapping[str, int]], judge: Judge | None = None) -> Unit:
        """Do a unit of work unless it was done before, and add its facts to the counters.

        Args:
            name: of the unit.
            basis: fingerprint of everything its rows depend on.
            work: writes the unit's rows and returns counts.
            judge: whose note is shown with the progress.
        """
        with self._output.unit(name, basis) as unit:
            if not unit.done:
                unit.facts = dict(work())
        self.counts.update(unit.facts)
        self.report(judge)
        return unit

    def replies(self, judge: Judge, pairs: pa.Table, *, ahead: int | None = None) -> pa.Table:
        """Checked replies to rows of `PAIRS`.

        Args:
            judge: the judge.
            pairs: its input.
            ahead: progress within the unit at this point; None: one per answered pair.

        Raises:
            ValueError: the judge broke its contract, see `check_replies`.
        """
        judge_id = (
            judge.judge_id
        )  # it may wait for a server: here a signal ends that, in the judge's own thread none does
        replies = self.run_coroutine(judge, judge.judge(pairs), ahead=ahead)
        check_replies(judge_id, pairs, replies)
        return replies

    def run_coroutine(self, judge: Judge, work: Coroutine[Any, Any, T], *, ahead: int | None = None) -> T:
        """Result of a judge's coroutine, reporting progress meanwhile; `ahead` as for `replies`."""
        live = _live(judge)
        before = live.n_answered if live else 0

        def tick() -> None:
            answered = live.n_answered - before if live else 0
            self.report(judge, answered if ahead is None else ahead)

        return self._background.run(work, tick)

    def report(self, judge: Judge | None, ahead: int = 0) -> None:
        """Report progress: the counters plus `ahead` of the current unit."""
        done = self.counts.total() if self._measure is None else self.counts[self._measure]
        live = _live(judge)
        self._output.progress(done + ahead, self._total, live.note if live else "")


def _live(judge: Judge | None) -> Live | None:
    return judge.live if judge else None


def facts_of(judges: Iterable[Judge]) -> dict[str, Any]:
    """What a manifest records of a stage's judges: ids and summed counters."""
    each = {id(judge): judge for judge in judges}.values()  # one may serve several tenants
    noted = Counter[str]()
    for judge in each:
        noted.update(judge.facts)
    return {"judge_ids": sorted({judge.judge_id for judge in each}), **noted}


def label_counts(relevant: pa.ChunkedArray) -> dict[str, int]:
    """Number of relevant, not relevant and unreadable (null) labels."""
    yes = pc.sum(relevant.cast(pa.int32()), min_count=0).as_py()
    return {"relevant": yes, "not_relevant": pc.count(relevant).as_py() - yes, "unreadable": relevant.null_count}


def as_numbers(relevant: pa.ChunkedArray) -> NDArray[np.float64]:
    """1, 0, or NaN for a null label."""
    return np.asarray(pc.fill_null(relevant.cast(pa.float64()), float("nan")).to_numpy())
