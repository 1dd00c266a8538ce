"""What settings are chosen on: the validation queries, or where they are few, folds of them and the train queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.raters import folds as folds_of
from darklode.pipeline.train.task import QuerySet, Task

if TYPE_CHECKING:
    from darklode.pipeline.train.methods import Method
    from darklode.pipeline.train.weights import Weights

ENOUGH = 100
"""Validation queries; what is chosen on fewer is chance (27 of them picked settings that lost up to .025)."""

ONE_CLUSTER = "nothing can be chosen: all queries with a positive are of one cluster; build or mine with more queries"


@dataclass(frozen=True)
class ValidationScore:
    """nDCG@10 of a share of the way from the base, as a mean over queries."""

    share: float
    value: float
    queries: int


def asked_first(train: QuerySet, validation: QuerySet) -> QuerySet:
    """The queries that a choice rests on: those of validation, and where they are fewer than `ENOUGH` all of both."""
    return validation if len(validation) >= ENOUGH else train.concat(validation)


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
    every = task.train.concat(task.validation)
    assert every.groups is not None
    fold = folds_of(every.groups.dictionary_encode().indices.to_numpy().astype(np.int64), seed)
    all_folds = [_fold(task, every, fold == number) for number in np.unique(fold)]
    useful = [fold_task for fold_task in all_folds if len(fold_task.pair_query)]
    if not useful or len(all_folds) == 1:
        raise ArtifactError(ONE_CLUSTER)
    return useful


def _fold(task: Task, every: QuerySet, in_fold: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Task:
    taught = task.with_queries(np.flatnonzero(~in_fold[: len(task.train)]))
    query, position = every.positives(task.frozen)
    shares = np.zeros(len(every), bool)
    shares[query[np.isin(position, taught.pair_position)]] = True
    own = in_fold & ~shares
    return replace(taught, validation=every.take(np.flatnonzero(own if own.any() else in_fold)), is_complete=True)


def full_training(task: Task) -> Task:
    """What the chosen setting is trained on at last: all train queries, to the last step, as the folds were."""
    looked_at = task.validation if len(task.validation) else task.train
    return replace(task, validation=looked_at, is_complete=True)


def score_shares(task: Task, method: Method, weights: Weights) -> list[ValidationScore]:
    """What weights reach on the task's validation queries, by share of the way; the base first, as a share of 0."""
    queries, n = task.validation, len(task.validation)
    scores = [ValidationScore(0.0, queries.ndcg(task.frozen, queries.vectors), n)]
    for share in method.shares:
        searched = method.transform_index(task.frozen, weights, share)
        scores.append(ValidationScore(share, queries.ndcg(searched, method.vectors(weights, share, queries)), n))
    return scores


def preference(score: ValidationScore) -> tuple[float, float]:
    """The greater, the better: by value, of equals the one nearest to the base, as `best` of the trials has it."""
    return score.value, -score.share


def best_score(scores: Iterable[ValidationScore]) -> ValidationScore:
    """The best share of a setting."""
    return max(scores, key=preference)


def best_setting(bests: Sequence[ValidationScore]) -> int:
    """The place of the best setting, each being its best share; of equals the first."""
    return max(range(len(bests)), key=lambda index: (preference(bests[index]), -index))


def average_folds(fold_scores: Iterable[Sequence[ValidationScore]]) -> list[ValidationScore]:
    """The means over the queries of all folds, share by share."""
    return [
        ValidationScore(
            group[0].share,
            sum(score.value * score.queries for score in group) / sum(score.queries for score in group),
            total,
        )
        for group in zip(*fold_scores, strict=True)
        for total in [sum(score.queries for score in group)]
    ]
