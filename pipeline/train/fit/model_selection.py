"""Model selection on validation queries or, if there are few, on cross-validation folds of validation and train
queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from darklode.pipeline.base.agreement import folds as folds_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.vectors import FrozenIndex

if TYPE_CHECKING:
    from darklode.pipeline.train.fit.hybrid_selection import HybridScorer
    from darklode.pipeline.train.fit.methods import Method
    from darklode.pipeline.train.types import Weights

MIN_VALIDATION = 100
"""Minimum number of validation queries that share no positive with training: selection on fewer is chance (27 queries
selected settings that lost up to 0.025 nDCG@10).
"""

SINGLE_CLUSTER = (
    "cannot select a setting: all queries with a positive are in one cluster; build or mine with more queries"
)


@dataclass(frozen=True)
class ValidationScore:
    """Mean nDCG@10 at a share of the way from the base to the trained weights."""

    share: float
    value: float
    queries: int


def without_shared_positives(task: Task) -> Task:
    """The task with only those validation queries that share no positive with training, as in the test.

    On the others a model is rewarded for memorizing: on scifact, where 72 of 109 validation queries share a positive,
    their score rose from .67 to .87 while the selected setting lost on unseen positives.
    """
    query, position = task.validation.positives(task.frozen)
    shared = query[np.isin(position, task.pair_position)]
    return replace(task, validation=task.validation.take(np.setdiff1d(np.arange(len(task.validation)), shared)))


def selection_queries(task: Task) -> QuerySet:
    """The queries that selection uses: unshared validation, or validation and train if fewer than `MIN_VALIDATION`."""
    unshared = without_shared_positives(task).validation
    return unshared if len(unshared) >= MIN_VALIDATION else task.train.concat(task.validation)


def folds(task: Task, seed: int) -> list[Task]:
    """Up to five cross-validation tasks, by query clusters.

    Empty if `MIN_VALIDATION` validation queries share no positive with training: then these select.

    Only train queries are trained on. A held-out query counts if it shares no positive with its fold's training
    queries, as in the test; if every one does, all count.

    Args:
        task: the whole task.
        seed: assigns clusters to folds.

    Raises:
        ArtifactError: there is only one cluster.
    """
    if len(without_shared_positives(task).validation) >= MIN_VALIDATION:
        return []
    all_queries = task.train.concat(task.validation)
    assert all_queries.groups is not None
    fold = folds_of(all_queries.groups.dictionary_encode().indices.to_numpy().astype(np.int64), seed)
    all_folds = [_fold(task, all_queries, fold == number) for number in np.unique(fold)]
    useful = [fold_task for fold_task in all_folds if len(fold_task.pair_query)]
    if not useful or len(all_folds) == 1:
        raise ArtifactError(SINGLE_CLUSTER)
    return useful


def _fold(task: Task, all_queries: QuerySet, in_fold: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Task:
    fold_task = task.with_queries(np.flatnonzero(~in_fold[: len(task.train)]))
    query, position = all_queries.positives(task.frozen)
    shares_positive = np.zeros(len(all_queries), bool)
    shares_positive[query[np.isin(position, fold_task.pair_position)]] = True
    is_unshared = in_fold & ~shares_positive
    return replace(
        fold_task,
        validation=all_queries.take(np.flatnonzero(is_unshared if is_unshared.any() else in_fold)),
        keep_last=True,
    )


def full_training(task: Task) -> Task:
    """The final training task after selection on folds: all train queries, to the last step, as in the folds."""
    validation = task.validation if len(task.validation) else task.train
    return replace(task, validation=validation, keep_last=True)


def score_shares(
    task: Task, method: Method, weights: Weights, hybrid: HybridScorer | None = None
) -> list[ValidationScore]:
    """Validation score of trained weights at each share of the way from the base; the base itself first, as share 0.

    Args:
        task: has the validation queries.
        method: the method.
        weights: trained by it.
        hybrid: scores fused rankings; None: the encoder's own ranking is scored.
    """
    queries, n = task.validation, len(task.validation)

    def score(frozen: FrozenIndex, vectors: Floats, *, is_base: bool = False) -> float:
        if hybrid is None:
            return queries.ndcg(frozen, vectors)
        return hybrid.ndcg(frozen, queries, vectors, is_base=is_base)

    scores = [ValidationScore(0.0, score(task.frozen, queries.vectors, is_base=True), n)]
    for share in method.shares:
        searched = method.transform_index(task.frozen, weights, share)
        scores.append(ValidationScore(share, score(searched, method.vectors(weights, share, queries)), n))
    return scores


def preference(score: ValidationScore) -> tuple[float, float]:
    """Sort key of a score: by value, ties by the smaller share (nearest to the base)."""
    return score.value, -score.share


def best_score(scores: Iterable[ValidationScore]) -> ValidationScore:
    """The best share of one setting."""
    return max(scores, key=preference)


def best_setting(bests: Sequence[ValidationScore]) -> int:
    """Index of the best setting, given each setting's best share; the first one wins ties."""
    return max(range(len(bests)), key=lambda index: (preference(bests[index]), -index))


def average_folds(fold_scores: Iterable[Sequence[ValidationScore]]) -> list[ValidationScore]:
    """Mean over the queries of all folds, for each share."""
    return [
        ValidationScore(
            group[0].share,
            sum(score.value * score.queries for score in group) / sum(score.queries for score in group),
            total,
        )
        for group in zip(*fold_scores, strict=True)
        for total in [sum(score.queries for score in group)]
    ]
