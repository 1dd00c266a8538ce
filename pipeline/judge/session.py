"""Run judges inside a stage: resumable units of work, checked replies, and progress."""

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
    """Runs a stage's judges in a background event loop and reports progress; a context manager.

    Args:
        output: takes units and progress.
        total: progress at the end, e.g. the number of pairs.
        progress_count: which of `counts` grows to `total`; None: their sum.

    Attributes:
        counts: sums of the facts of all finished units.
    """

    def __init__(self, output: Output, total: int, *, progress_count: str | None = None) -> None:
        self._output = output
        self._total = total
        self._progress_count = progress_count
        self._background = Background()
        self.counts = Counter[str]()

    def __enter__(self) -> Self:
        self._background.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._background.__exit__(kind, error, at)

    def unit(self, name: str, basis: str, work: Callable[[], Mapping[str, int]], judge: Judge | None = None) -> Unit:
        """Run a unit of work, or reuse its result from an earlier run, and add its facts to `counts`.

        Args:
            name: name of the unit.
            basis: fingerprint of everything that its rows depend on; another basis runs it again.
            work: writes the unit's rows and returns its facts.
            judge: its note is shown with the progress.
        """
        with self._output.unit(name, basis) as unit:
            if not unit.done:
                unit.facts = dict(work())
        self.counts.update(unit.facts)
        self.report(judge)
        return unit

    def replies(self, judge: Judge, pairs: pa.Table, *, unit_progress: int | None = None) -> pa.Table:
        """Judge pairs, and check the replies.

        Args:
            judge: judges.
            pairs: rows of `PAIRS`.
            unit_progress: progress within the unit; None: the number of pairs answered so far.

        Returns:
            Rows of `REPLIES`, in the order of the pairs.

        Raises:
            ValueError: the replies break the judge's contract (`check_replies`).
        """
        return self.routed_replies(judge, pairs, unit_progress=unit_progress)[0]

    def routed_replies(
        self, judge: Judge, pairs: pa.Table, *, unit_progress: int | None = None
    ) -> tuple[pa.Table, pa.Array]:
        """As `replies`, with the id of the judge that gave each reply, shape (n_pairs,)."""
        # Reading the ids may wait for a server. In this thread Ctrl-C interrupts the wait; in the event loop's thread
        # no signal would.
        judge_id, ids = judge.judge_id, judge.answering_ids
        replies, answered_by = self.run_coroutine(judge, judge.route(pairs), unit_progress=unit_progress)
        check_replies(judge_id, pairs, replies)
        return replies, pa.array(ids, pa.string()).take(pa.array(answered_by))

    def run_coroutine(self, judge: Judge, work: Coroutine[Any, Any, T], *, unit_progress: int | None = None) -> T:
        """Run a judge's coroutine and report progress meanwhile; `unit_progress` as for `replies`."""
        live = _live(judge)
        before = live.n_answered if live else 0

        def tick() -> None:
            answered = live.n_answered - before if live else 0
            self.report(judge, answered if unit_progress is None else unit_progress)

        return self._background.run(work, tick)

    def report(self, judge: Judge | None, unit_progress: int = 0) -> None:
        """Report the progress of finished units plus that of the current one."""
        done = self.counts.total() if self._progress_count is None else self.counts[self._progress_count]
        live = _live(judge)
        self._output.progress(done + unit_progress, self._total, live.note if live else "")


def _live(judge: Judge | None) -> Live | None:
    return judge.live if judge else None


def judge_facts(judges: Iterable[Judge]) -> dict[str, Any]:
    """Ids and summed counters of a stage's judges, for its manifest."""
    distinct_judges = {id(judge): judge for judge in judges}.values()  # one judge may serve several tenants
    counters = Counter[str]()
    for judge in distinct_judges:
        counters.update(judge.facts)
    ids = {judge_id for judge in distinct_judges for judge_id in judge.answering_ids}
    return {"judge_ids": sorted(ids), **counters}


def label_counts(relevant: pa.ChunkedArray) -> dict[str, int]:
    """Number of relevant, not relevant, and unreadable (null) labels."""
    yes = pc.sum(relevant.cast(pa.int32()), min_count=0).as_py()
    return {"relevant": yes, "not_relevant": pc.count(relevant).as_py() - yes, "unreadable": relevant.null_count}


def labels_as_floats(relevant: pa.ChunkedArray) -> NDArray[np.float64]:
    """Labels as 1.0 and 0.0, NaN for null; shape (n_pairs,)."""
    return np.asarray(pc.fill_null(relevant.cast(pa.float64()), float("nan")).to_numpy())
