"""Assign pairs to reviewers, and hold their answers.

A pair on one reviewer's screen is locked for the others, unless all reviewers label it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.validate.review.journal import AnswerJournal, ReviewAnswer
from darklode.pipeline.validate.review.pairs import ReviewPair

LOCK_SECONDS = 600.0
"""Seconds for which a pair shown to one reviewer is locked for the others.

Shorter, two reviewers may label the same pair; longer, a pair of a reviewer who left waits for that time.
"""


class ReviewLocks:
    """Time-limited locks of pairs, at most one reviewer per pair.

    Args:
        pairs: number of pairs.
        clock: returns monotonic seconds.
    """

    def __init__(self, pairs: int, clock: Callable[[], float]) -> None:
        self._owner = np.full(pairs, -1)
        self._until = np.zeros(pairs)
        self._clock = clock

    def lock(self, row: int, reviewer: int) -> None:
        """Lock a pair for a reviewer."""
        self._owner[row] = reviewer
        self._until[row] = self._clock() + LOCK_SECONDS

    def unlock(self, row: int) -> None:
        """Unlock a pair."""
        self._owner[row] = -1

    def locked_by_others(self, reviewer: int) -> NDArray[np.bool_]:
        """Whether each pair is locked by another reviewer, shape (n_pairs,)."""
        is_locked: NDArray[np.bool_] = (self._owner >= 0) & (self._until > self._clock()) & (self._owner != reviewer)
        return is_locked


class ReviewSession:
    """State of a review, in memory and in the journal; thread-safe within one process.

    Changes of the state hold `_changing`, for a short time. `Reviewer.writing` is held while an answer is written to
    the journal, which may be slow, so that one reviewer's answers are stored in order without stopping the others.

    Args:
        rows: row of each pair by its name, in order of review.
        shared: whether every reviewer labels the pair, shape (n_pairs,); other pairs get one label.
        journal: holds the answers so far, and receives new ones; answers to pairs of older samples are ignored.
        clock: returns monotonic seconds, for locks.
    """

    def __init__(
        self,
        rows: Mapping[str, int],
        shared: NDArray[np.bool_],
        journal: AnswerJournal,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows = rows
        self._shared = shared
        self._journal = journal
        self._labels = np.zeros(len(shared), np.int64)
        self._locks = ReviewLocks(len(shared), clock)
        self._reviewers: dict[str, Reviewer] = {}
        self._changing = threading.RLock()
        for answer in journal.read():
            self._apply(answer)

    def reviewers(self) -> dict[str, ReviewProgress]:
        """Progress of each reviewer with an answer, by name."""
        with self._changing:
            names = sorted((name for name, reviewer in self._reviewers.items() if reviewer.answers), key=str.casefold)
            return {name: self.progress(name) for name in names}

    def canonical_name(self, name: str) -> str:
        """The reviewer's name as first used; names are case-insensitive."""
        with self._changing:
            names_by_folded = {reviewer_name.casefold(): reviewer_name for reviewer_name in self._reviewers}
            return name if name in self._reviewers else names_by_folded.get(name.casefold(), name)

    def progress(self, reviewer: str) -> ReviewProgress:
        """Progress of a reviewer and of the review."""
        with self._changing:
            person = self._reviewer(reviewer)
            free = self._free(person)
            locked_rows = self._locks.locked_by_others(person.number) & ~self._shared
            return ReviewProgress(
                answered=len(person.answers),
                skipped=sum(answer.relevance is None for answer in person.answers.values()),
                n_remaining=int((free & ~locked_rows).sum()),
                elsewhere=int((free & locked_rows).sum()),
                labelled=self.n_labelled,
                pairs=len(self._shared),
            )

    def labels(self) -> dict[str, float]:
        """Label of each pair by majority of its reviewers, 1 or 0, by name; without skipped and tied pairs."""
        with self._changing:
            votes = np.zeros(len(self._shared), np.int64)
            for reviewer in self._reviewers.values():
                for row, answer in reviewer.answers.items():
                    if answer.relevance is not None:
                        votes[row] += 1 if answer.relevance > 0 else -1
        return {name: float(votes[row] > 0) for name, row in self._rows.items() if votes[row]}

    @property
    def n_labelled(self) -> int:
        """Number of labelled pairs."""
        return int((self._labels > 0).sum())

    def next_pair(self, reviewer: str) -> int | None:
        """Row of the next pair for a reviewer, and lock it; None at the end.

        Retracted answers come first; then, in order, pairs that the reviewer has not answered and that are shared, or
        unlabelled and not locked.
        """
        with self._changing:
            person = self._reviewer(reviewer)
            locked_rows = self._locks.locked_by_others(person.number) & ~self._shared
            open_rows = self._free(person) & ~locked_rows
            if person.retracted:
                row = next(reversed(person.retracted))
            elif open_rows.any():
                row = int(open_rows.argmax())
            else:
                return None
            self._locks.lock(row, person.number)
            return row

    def answer_of(self, reviewer: str, row: int) -> ReviewAnswer | None:
        """A reviewer's current answer to a pair."""
        with self._changing:
            return self._reviewer(reviewer).answers.get(row)

    def retracted_answer(self, reviewer: str, row: int) -> ReviewAnswer | None:
        """A reviewer's retracted answer to a pair, unless answered again."""
        with self._changing:
            return self._reviewer(reviewer).retracted.get(row)

    def last_answer(self, reviewer: str) -> ReviewAnswer | None:
        """The answer that `undo` would retract."""
        with self._changing:
            answers = self._reviewer(reviewer).answers
            return answers[next(reversed(answers))] if answers else None

    def answer(
        self, reviewer: str, pair: ReviewPair, relevance: int | None, rationale: str | None, *, shown: bool
    ) -> bool:
        """Store an answer durably.

        Args:
            reviewer: name of the reviewer.
            pair: the pair that is answered.
            relevance: 0 or a grade; None skips the pair.
            rationale: the reviewer's reason, if given.
            shown: whether the reviewer could see the judge's verdict.

        Returns:
            False if it equals the reviewer's current answer, which is not stored again.
        """
        person = self._reviewer(reviewer)
        with person.writing:
            current_answer = person.answers.get(self._rows[pair.name])
            if current_answer and (current_answer.relevance, current_answer.rationale) == (relevance, rationale):
                return False
            ids = (pair.tenant, pair.query_id, pair.chunk_id)
            self._store_answer(ReviewAnswer(*ids, reviewer, relevance, datetime.now(UTC), rationale, judge_shown=shown))
        return True

    def undo(self, reviewer: str, name: str) -> bool:
        """Retract a reviewer's last answer, durably, if it is for the pair of this name.

        Returns:
            Whether it was retracted.
        """
        person = self._reviewer(reviewer)
        with person.writing:
            last_answer = self.last_answer(reviewer)
            if last_answer is None or last_answer.pair != name:
                return False
            self._store_answer(replace(last_answer, undone=True, answered_at=datetime.now(UTC)))
        return True

    def rows_for(self, reviewer: str) -> NDArray[np.int64]:
        """Rows of the pairs that a reviewer answered or may answer, in order, ignoring locks."""
        with self._changing:
            person = self._reviewer(reviewer)
            return np.flatnonzero(person.answered | self._free(person))

    def _store_answer(self, answer: ReviewAnswer) -> None:
        self._journal.append(answer)
        self._apply(answer)

    def _apply(self, answer: ReviewAnswer) -> None:
        row = self._rows.get(answer.pair)
        if row is None:
            return
        with self._changing:
            replaced_answer = self._reviewer(answer.reviewer).apply(row, answer)
            self._labels[row] += _is_label(answer) - _is_label(replaced_answer)
            if not answer.undone:
                self._locks.unlock(row)

    def _reviewer(self, name: str) -> Reviewer:
        with self._changing:
            if name not in self._reviewers:
                self._reviewers[name] = Reviewer(len(self._reviewers), np.zeros(len(self._shared), bool))
            return self._reviewers[name]

    def _free(self, person: Reviewer) -> NDArray[np.bool_]:
        """Whether the reviewer may still answer each pair, ignoring locks, shape (n_pairs,)."""
        free: NDArray[np.bool_] = ~person.answered & (self._shared | (self._labels == 0))
        return free


def _is_label(answer: ReviewAnswer | None) -> int:
    return int(answer is not None and not answer.undone and answer.relevance is not None)


NAME_CHARACTERS = 60
"""Maximum length of a reviewer's name."""

_JOINERS = {0x200C: "", 0x200D: ""}  # zero-width joiners of Persian and Indic scripts


@dataclass(frozen=True)
class ReviewProgress:
    """Progress of a reviewer, in numbers of pairs.

    Attributes:
        answered: pairs labelled or skipped by the reviewer.
        skipped: pairs skipped by the reviewer.
        n_remaining: pairs still to be answered by the reviewer, without locked ones.
        elsewhere: pairs still to be answered, but locked by others.
        labelled: pairs labelled by anyone.
        pairs: all pairs.
    """

    answered: int
    skipped: int
    n_remaining: int
    elsewhere: int
    labelled: int
    pairs: int


@dataclass
class Reviewer:
    """State of a reviewer.

    Attributes:
        number: number of the reviewer, from 0.
        answered: whether each pair has a current answer, shape (n_pairs,).
        answers: current answers by row, in the order given.
        retracted: retracted answers not given again, by row, in the order retracted.
        writing: lock while an answer is written to the journal.
    """

    number: int
    answered: NDArray[np.bool_]
    answers: dict[int, ReviewAnswer] = field(default_factory=dict)
    retracted: dict[int, ReviewAnswer] = field(default_factory=dict)
    writing: threading.Lock = field(default_factory=threading.Lock)

    def apply(self, row: int, answer: ReviewAnswer) -> ReviewAnswer | None:
        """Apply an answer or its retraction; returns the answer that it replaces."""
        replaced_answer = self.answers.pop(row, None)
        self.retracted.pop(row, None)
        self.answered[row] = not answer.undone
        if answer.undone:
            self.retracted[row] = replaced_answer or answer
        else:
            self.answers[row] = answer
        return replaced_answer


def reviewer_name(text: str) -> str | None:
    """Normalize a typed reviewer name; None if it is invalid."""
    name = " ".join(text.split())
    visible = name.translate(_JOINERS)
    return name if visible and len(name) <= NAME_CHARACTERS and visible.isprintable() else None
