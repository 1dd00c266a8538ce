"""What is known of a reviewer: the name, the answers so far, and how far that is."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipeline.review.journal import Answer

NAME_CHARACTERS = 60
_JOINERS = {0x200C: "", 0x200D: ""}  # part of how Persian and Indic names are written


@dataclass(frozen=True)
class Progress:
    """How far the review is.

    Attributes:
        answered: pairs that the reviewer labelled or skipped.
        skipped: those of them without a label.
        left: pairs that the reviewer is still to answer, those on other screens not counted.
        elsewhere: the same on the screens of others.
        labelled: pairs that anyone labelled.
        pairs: all pairs.
    """

    answered: int
    skipped: int
    left: int
    elsewhere: int
    labelled: int
    pairs: int


@dataclass
class Reviewer:
    """One reviewer's state.

    Attributes:
        number: from 0.
        answered: whether each pair has a standing answer, shape (n_pairs,).
        said: the standing answers by row, in the order given.
        back: those taken back and not given again, by row, in the order taken back.
        writing: held while an answer is on its way to the journal.
    """

    number: int
    answered: NDArray[np.bool_]
    said: dict[int, Answer] = field(default_factory=dict)
    back: dict[int, Answer] = field(default_factory=dict)
    writing: threading.Lock = field(default_factory=threading.Lock)

    def apply(self, row: int, answer: Answer) -> Answer | None:
        """Take in an answer, or its undoing; returns the standing one that it replaces."""
        before = self.said.pop(row, None)
        self.back.pop(row, None)
        self.answered[row] = not answer.undone
        if answer.undone:
            self.back[row] = before or answer
        else:
            self.said[row] = answer
        return before


def reviewer_name(given: str) -> str | None:
    """A reviewer's name from what somebody typed: white space is made plain; None where it cannot be one."""
    name = " ".join(given.split())
    visible = name.translate(_JOINERS)
    return name if visible and len(name) <= NAME_CHARACTERS and visible.isprintable() else None
