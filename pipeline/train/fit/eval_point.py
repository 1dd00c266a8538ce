"""An evaluation of an adaptation trial, and the test for a collapse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

PATIENCE = 3
"""Consecutive falls of the validation score, with a falling loss, after which a trial is stopped."""


@dataclass(frozen=True)
class EvalPoint:
    """A row of `training_log`.

    Attributes:
        step: number of steps done.
        loss: mean loss since the last evaluation; None before the first step.
        validation: nDCG@10 on the validation queries.
        replaced: share of the negatives that the last mining replaced; None before the second mining.
        judged: share of the negatives that are labelled as not relevant.
        short: share of empty slots among the negatives.
        spread: 1 − mean cosine of two different query vectors; 0 if all are equal.
    """

    step: int
    loss: float | None
    validation: float
    replaced: float | None
    judged: float
    short: float
    spread: float

    @property
    def quality(self) -> float:
        return self.validation


def has_collapsed(points: Sequence[EvalPoint]) -> bool:
    """Whether the last evaluations show a falling score at a falling loss, the typical end with fixed negatives.

    Source: DevRev-Search, A.4, Figure 2.
    """
    last = points[-PATIENCE - 1 :]
    losses = [point.loss for point in last[1:] if point.loss is not None]
    if len(last) <= PATIENCE or len(losses) < PATIENCE:
        return False
    falling = all(later.validation < sooner.validation for sooner, later in pairwise(last))
    return falling and losses[-1] < losses[0]
