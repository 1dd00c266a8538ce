"""Judging as stages do it: pairs in, checked replies out, in units that survive a kill, told as they come."""

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
    """Waits for a stage's judges as long as its context is open, and says how far they are.

    Args:
        output: takes units and progress.
        total: how much there is to do.
        measure: the count that grows to the total; None: all counts together.

    Attributes:
        counts: the facts of the units so far, added up.
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
        """Do a unit of the stage's work unless that was done before, and add its facts to the counts.

        Args:
            name: of the unit.
            basis: names all that its rows depend on.
            work: writes the unit's rows, and counts them.
            judge: whose note is told with the progress.
        """
        with self._output.unit(name, basis) as unit:
            if not unit.done:
                unit.facts = dict(work())
        self.counts.update(unit.facts)
        self.report(judge)
        return unit

    def replies(self, judge: Judge, pairs: pa.Table, *, ahead: int | None = None) -> pa.Table:
        """The judge's replies to rows of `PAIRS`, held to the port.

        Args:
            judge: to be waited for.
            pairs: what it is asked.
            ahead: how much of the unit is done by then; None: a pair with each that the judge answers.

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
        """The result of a coroutine of the judge's, with progress meanwhile; `ahead` as for `replies`."""
        live = _live(judge)
        before = live.n_answered if live else 0

        def tick() -> None:
            answered = live.n_answered - before if live else 0
            self.report(judge, answered if ahead is None else ahead)

        return self._background.run(work, tick)

    def report(self, judge: Judge | None, ahead: int = 0) -> None:
        """Say how far the stage is: the counts, and `ahead` more of the unit that is worked on."""
        done = self.counts.total() if self._measure is None else self.counts[self._measure]
        live = _live(judge)
        self._output.progress(done + ahead, self._total, live.note if live else "")


def _live(judge: Judge | None) -> Live | None:
    return judge.live if judge else None


def facts_of(judges: Iterable[Judge]) -> dict[str, Any]:
    """What a manifest says of a stage's judges: their ids, and the sums of what they count."""
    each = {id(judge): judge for judge in judges}.values()  # one may serve several tenants
    noted = Counter[str]()
    for judge in each:
        noted.update(judge.facts)
    return {"judge_ids": sorted({judge.judge_id for judge in each}), **noted}


def label_counts(relevant: pa.ChunkedArray) -> dict[str, int]:
    """How many labels are relevant, not relevant and unreadable (null)."""
    yes = pc.sum(relevant.cast(pa.int32()), min_count=0).as_py()
    return {"relevant": yes, "not_relevant": pc.count(relevant).as_py() - yes, "unreadable": relevant.null_count}


def as_numbers(relevant: pa.ChunkedArray) -> NDArray[np.float64]:
    """1, 0, or not a number where the label is null."""
    return np.asarray(pc.fill_null(relevant.cast(pa.float64()), float("nan")).to_numpy())
