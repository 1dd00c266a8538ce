"""What settings are chosen on: the validation queries, or where they are few, folds of them and the train queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.raters import folds as folds_of
from darklode.pipeline.train.task import Questions, Task

if TYPE_CHECKING:
    from darklode.pipeline.train.methods import Method
    from darklode.pipeline.train.weights import Weights

ENOUGH = 100
"""Validation queries; what is chosen on fewer is chance (27 of them picked settings that lost up to .025)."""

ONE_CLUSTER = "nothing can be chosen: all queries with a positive are of one cluster; build or mine with more queries"


@dataclass(frozen=True)
class Reached:
    """nDCG@10 of a share of the way from the base, as a mean over queries."""

    share: float
    value: float
    queries: int


def asked_first(train: Questions, validation: Questions) -> Questions:
    """The queries that a choice rests on: those of validation, and where they are fewer than `ENOUGH` all of both."""
    return validation if len(validation) >= ENOUGH else train.and_those(validation)


def folds(task: Task, seed: int) -> list[Task]:
    """Where validation is too small: up to five tasks, each to be looked at on clusters that it does not learn from.

    Only train queries are learned from. A held-out query counts where it shares no positive with what its fold learns
    from, as in the test; where all do, all count. Empty where validation is `ENOUGH`.

    Args:
        task: all of it.
        seed: decides which clusters share a fold.

    Raises:
        ArtifactError: there is one cluster alone.
    """
    if len(task.validation) >= ENOUGH:
        return []
    every = task.train.and_those(task.validation)
    assert every.groups is not None
    fold = folds_of(every.groups.dictionary_encode().indices.to_numpy().astype(np.int64), seed)
    found = [_fold(task, every, fold == number) for number in np.unique(fold)]
    useful = [one for one in found if len(one.pair_query)]
    if not useful or len(found) == 1:
        raise ArtifactError(ONE_CLUSTER)
    return useful


def _fold(task: Task, every: Questions, held: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Task:
    taught = task.learning_from(np.flatnonzero(~held[: len(task.train)]))
    query, position = every.positives(task.frozen)
    shares = np.zeros(len(every), bool)
    shares[query[np.isin(position, taught.pair_position)]] = True
    own = held & ~shares
    return replace(taught, validation=every.take(np.flatnonzero(own if own.any() else held)), whole=True)


def whole(task: Task) -> Task:
    """What the chosen setting is trained on at last: all train queries, to the last step, as the folds were."""
    looked_at = task.validation if len(task.validation) else task.train
    return replace(task, validation=looked_at, whole=True)


def reach(task: Task, method: Method, weights: Weights) -> list[Reached]:
    """What weights reach on the task's validation queries, by share of the way; the base first, as a share of 0."""
    asked, n = task.validation, len(task.validation)
    found = [Reached(0.0, asked.reached(task.frozen, asked.vectors), n)]
    for share in method.shares:
        searched = method.searched(task.frozen, weights, share)
        found.append(Reached(share, asked.reached(searched, method.vectors(weights, share, asked)), n))
    return found


def preference(one: Reached) -> tuple[float, float]:
    """The greater, the better: by value, of equals the one nearest to the base, as `best` of the trials has it."""
    return one.value, -one.share


def most(found: Iterable[Reached]) -> Reached:
    """The best share of a setting."""
    return max(found, key=preference)


def best_setting(bests: Sequence[Reached]) -> int:
    """The place of the best setting, each being its best share; of equals the first."""
    return max(range(len(bests)), key=lambda place: (preference(bests[place]), -place))


def together(found: Iterable[Sequence[Reached]]) -> list[Reached]:
    """The means over the queries of all folds, share by share."""
    return [
        Reached(of[0].share, sum(one.value * one.queries for one in of) / sum(one.queries for one in of), total)
        for of in zip(*found, strict=True)
        for total in [sum(one.queries for one in of)]
    ]
