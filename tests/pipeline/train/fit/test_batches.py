"""Batches of a trial: order of rows, allowed candidates and target distributions."""

import numpy as np
import pytest

from darklode.pipeline.train.data.labels import Labels, Probabilities
from darklode.pipeline.train.fit.batches import ShuffledRows, allowed_candidates, target_distribution

LABELS = Labels.from_pairs(np.array([0, 0, 1]), np.array([4, 5, 6]), 10)
QUERIES, CANDIDATES = np.array([0, 1]), np.array([4, 6, 5, 8, 7, -1])
"""The queries' positives 4 and 6, then two candidates of each query."""


def test_every_row_comes_once_an_epoch_and_batches_may_span_two() -> None:
    rows = ShuffledRows(5, 3, seed=1)
    drawn = np.concatenate([rows.next() for _ in range(5)])
    for epoch in range(3):
        assert sorted(drawn[5 * epoch : 5 * epoch + 5]) == list(range(5))


def test_skipped_batches_are_those_that_would_have_been_read() -> None:
    read, skipped = ShuffledRows(7, 2, seed=3), ShuffledRows(7, 2, seed=3)
    for _ in range(4):
        read.next()
    skipped.skip(4)
    assert read.next().tolist() == skipped.next().tolist()


@pytest.mark.parametrize(
    ("in_batch", "allowed"),
    [
        (True, [[1, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 0]]),
        (False, [[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0]]),
    ],
)
def test_other_positives_and_empty_places_are_no_negatives(in_batch: bool, allowed: list[list[int]]) -> None:
    assert allowed_candidates(LABELS, QUERIES, CANDIDATES, in_batch=in_batch).astype(int).tolist() == allowed


def test_a_target_is_the_judges_probabilities_normalized_and_a_positive_without_one_counts_as_1() -> None:
    known = Probabilities.from_pairs(np.array([0, 0]), np.array([4, 8]), np.array([0.6, 0.2], np.float32), 10)
    allowed = allowed_candidates(LABELS, QUERIES, CANDIDATES, in_batch=True)
    target = target_distribution(known, QUERIES, CANDIDATES, allowed)
    np.testing.assert_allclose(target, [[0.75, 0, 0, 0.25, 0, 0], [0, 1, 0, 0, 0, 0]])
