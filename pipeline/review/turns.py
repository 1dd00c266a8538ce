"""Who is asked about which pair next, and what each reviewer said so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from pipeline.review.deck import Pair
from pipeline.review.holds import Holds
from pipeline.review.journal import Answer, Journal
from pipeline.review.reviewers import Progress, Reviewer


class Turns:
    """The state of a review, kept in memory and in the journal; for the threads of one process.

    Args:
        rows: row of each pair by its name, in order of review.
        shared: whether every reviewer labels the pair, shape (n_pairs,); one of them labels any other.
        journal: holds the answers so far, and takes the new ones; those on pairs of an older sample are left alone.
        clock: seconds that only grow, for holds.
    """

    def __init__(
        self,
        rows: Mapping[str, int],
        shared: NDArray[np.bool_],
        journal: Journal,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows, self._shared, self._journal = rows, shared, journal
        self._labels = np.zeros(len(shared), np.int64)
        self._holds = Holds(len(shared), clock)
        self._reviewers: dict[str, Reviewer] = {}
        self._changing = threading.RLock()
        for answer in journal.read():
            self._apply(answer)

    def reviewers(self) -> dict[str, Progress]:
        """Everybody who answered, by name."""
        with self._changing:
            names = sorted((name for name, one in self._reviewers.items() if one.said), key=str.casefold)
            return {name: self.progress(name) for name in names}

    def spelled(self, name: str) -> str:
        """The name as this review has it: `ann` and `Ann` are one person."""
        with self._changing:
            known = {one.casefold(): one for one in self._reviewers}
            return name if name in self._reviewers else known.get(name.casefold(), name)

    def progress(self, reviewer: str) -> Progress:
        """How far one reviewer, and the review, is."""
        with self._changing:
            person = self._reviewer(reviewer)
            free, held = self._free(person), self._holds.of_others(person.number) & ~self._shared
            return Progress(
                answered=len(person.said),
                skipped=sum(answer.relevance is None for answer in person.said.values()),
                left=int((free & ~held).sum()),
                elsewhere=int((free & held).sum()),
                labelled=self.labelled,
                pairs=len(self._shared),
            )

    @property
    def labelled(self) -> int:
        """How many pairs anyone labelled."""
        return int((self._labels > 0).sum())

    def next(self, reviewer: str) -> int | None:
        """The row of the pair to show a reviewer, who then holds it; None where nothing is left.

        A pair that was taken back comes first; then, in order, one that is new to the reviewer and shared, or labelled
        by nobody and on no other screen.
        """
        with self._changing:
            person = self._reviewer(reviewer)
            others = self._holds.of_others(person.number) & ~self._shared
            open_rows = self._free(person) & ~others
            if person.back:
                row = next(reversed(person.back))
            elif open_rows.any():
                row = int(open_rows.argmax())
            else:
                return None
            self._holds.hold(row, person.number)
            return row

    def said(self, reviewer: str, row: int) -> Answer | None:
        """A reviewer's standing answer to a pair."""
        with self._changing:
            return self._reviewer(reviewer).said.get(row)

    def taken_back(self, reviewer: str, row: int) -> Answer | None:
        """A reviewer's answer to a pair that was taken back, and not given anew."""
        with self._changing:
            return self._reviewer(reviewer).back.get(row)

    def last(self, reviewer: str) -> Answer | None:
        """The answer that `undo` would take back."""
        with self._changing:
            said = self._reviewer(reviewer).said
            return said[next(reversed(said))] if said else None

    def answer(self, reviewer: str, pair: Pair, relevance: int | None, rationale: str | None, *, shown: bool) -> bool:
        """Keep what a reviewer said of a pair; it is on disk when this returns.

        Args:
            relevance: 0 or a grade; None skips the pair.
            shown: the reviewer could see the judge's verdict.

        Returns:
            whether it is news: the same answer given again is not kept twice.
        """
        person = self._reviewer(reviewer)
        with person.writing:
            before = person.said.get(self._rows[pair.name])
            if before and (before.relevance, before.rationale) == (relevance, rationale):
                return False
            ids = (pair.tenant, pair.query_id, pair.chunk_id)
            self._keep(Answer(*ids, reviewer, relevance, datetime.now(UTC), rationale, judge_shown=shown))
        return True

    def undo(self, reviewer: str, name: str) -> bool:
        """Take back a reviewer's last answer, if it is the one on the pair of this name; that is on disk then.

        Returns:
            whether it was.
        """
        person = self._reviewer(reviewer)
        with person.writing:
            last = self.last(reviewer)
            if last is None or last.pair != name:
                return False
            self._keep(replace(last, undone=True, answered_at=datetime.now(UTC)))
        return True

    def rows_for(self, reviewer: str) -> NDArray[np.int64]:
        """Rows of the pairs that a reviewer answered or may yet answer, in order, whoever has them on the screen."""
        with self._changing:
            person = self._reviewer(reviewer)
            return np.flatnonzero(person.answered | self._free(person))

    def _keep(self, answer: Answer) -> None:
        self._journal.append(answer)
        self._apply(answer)

    def _apply(self, answer: Answer) -> None:
        row = self._rows.get(answer.pair)
        if row is None:
            return
        with self._changing:
            before = self._reviewer(answer.reviewer).apply(row, answer)
            self._labels[row] += _is_label(answer) - _is_label(before)
            if not answer.undone:
                self._holds.release(row)

    def _reviewer(self, name: str) -> Reviewer:
        with self._changing:
            if name not in self._reviewers:
                self._reviewers[name] = Reviewer(len(self._reviewers), np.zeros(len(self._shared), bool))
            return self._reviewers[name]

    def _free(self, person: Reviewer) -> NDArray[np.bool_]:
        free: NDArray[np.bool_] = ~person.answered & (self._shared | (self._labels == 0))
        return free


def _is_label(answer: Answer | None) -> int:
    return int(answer is not None and not answer.undone and answer.relevance is not None)
