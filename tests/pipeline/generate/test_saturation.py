"""Clusters of similar queries, estimates of those not seen yet, and the rule that stops a generation."""

import numpy as np
import pytest

from darklode.pipeline.generate.saturation import (
    BATCH,
    DEFAULT_SIMILARITY,
    EarlyStop,
    QueryClusters,
    Saturation,
    ngram_vectors,
    saturation_curve,
    usual_similarity,
)
from helpers.adapted import word

N_CLUSTERS = 200


def drawn_queries(n: int, seed: int = 1) -> tuple[list[str], np.ndarray]:
    """Queries about topics of unequal popularity, and their topics."""
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, N_CLUSTERS + 1)
    topics = random.choice(N_CLUSTERS, n, p=share / share.sum())
    return [f"{word(11 * topic)} {word(11 * topic + 5)}" for topic in topics.tolist()], topics


def test_similar_queries_share_a_cluster_and_arrival_decides() -> None:
    clusters = QueryClusters(0.6)
    assert clusters.add(["reset my password", "reset password", "delete an invoice"]) == 2
    assert clusters.add(["how do I reset my password", "delete invoice", "export logs"]) == 1
    assert clusters.sizes == [3, 2, 1]
    assert clusters.add([]) == 0


def test_batches_do_not_change_the_clusters() -> None:
    queries, _ = drawn_queries(300)
    at_once, in_parts = QueryClusters(0.5), QueryClusters(0.5)
    at_once.add(queries)
    for start in range(0, 300, 50):
        in_parts.add(queries[start : start + 50])
    assert at_once.sizes == in_parts.sizes


def test_vectors_have_length_1() -> None:
    vectors = ngram_vectors(["a query", "another"])
    assert np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel().tolist() == pytest.approx([1, 1])


def test_estimates_by_hand() -> None:
    state = Saturation(np.array([1, 1, 1, 2, 5]))
    assert state.n == 10
    assert state.new_share == 0.3
    assert state.unseen == pytest.approx(0.9 * 3 * 2 / (2 * 2))
    assert 0 < state.expected_new(5) < state.expected_new(500) <= state.unseen
    assert Saturation(np.array([4, 4])).evenness == pytest.approx(1)


def test_estimates_of_nothing_and_of_saturated_queries() -> None:
    nothing = Saturation(np.empty(0, np.int64))
    assert (nothing.n, nothing.new_share, nothing.unseen, nothing.evenness) == (0, 1.0, 0.0, None)
    assert nothing.expected_new(10) == 0
    saturated = Saturation(np.array([3, 4, 5]))
    assert (saturated.new_share, saturated.unseen, saturated.expected_new(100)) == (0, 0, 0)
    assert Saturation(np.array([1, 4, 5])).expected_new(100) == pytest.approx(0.1)


def test_the_estimates_predict_the_next_queries() -> None:
    queries, topics = drawn_queries(3 * BATCH)
    curve = saturation_curve(queries, 0.9)
    assert [row["queries"] for row in curve] == [BATCH, 2 * BATCH, 3 * BATCH]
    assert [row["clusters"] for row in curve] == [
        len(set(topics[:end].tolist())) for end in (BATCH, 2 * BATCH, 3 * BATCH)
    ]
    first, second, _ = curve
    reached = (second["clusters"] or 0) - (first["clusters"] or 0)
    assert first["doubling"] == pytest.approx(reached, rel=0.5)
    assert 1 - (second["repeated_share"] or 0) < (first["new_share"] or 0)
    assert (first["new_share"] or 0) > (second["new_share"] or 0)


def test_similarity_is_that_of_real_queries_of_other_clusters() -> None:
    texts = ["reset my password", "reset the password", "reset a pin", "delete an invoice"]
    value = usual_similarity(texts, ["a", "a", "b", "c"])
    assert 0 < value < 0.6
    assert usual_similarity(texts, ["a"] * 4) == DEFAULT_SIMILARITY
    assert usual_similarity([], []) == DEFAULT_SIMILARITY


def test_generation_stops_when_too_few_queries_are_new_but_not_at_once() -> None:
    queries = [f"{word(7 * number)} of {word(9 * number)}" for number in range(400)]
    repeated = EarlyStop(0.9, 0.2)
    repeated.add([queries[0]] * 50)
    assert not repeated.is_reached  # one batch is no trend
    repeated.add([queries[0]] * 50)
    assert repeated.is_reached
    always_new = EarlyStop(0.9, 0.2)
    always_new.add(queries[:200])
    always_new.add(queries[200:])
    assert not always_new.is_reached
