"""What retrievers and the embedded judge say of a pool's pairs, as numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.judge.adaptive.pool_features import Evidence, gather_evidence, rank_features
from darklode.pipeline.judge.pairs import pool_pairs
from darklode.schemas.tables import POOL, RANKINGS
from helpers.judge_tables import chunks, pool, queries
from helpers.runs import put

TEXTS = {"c1": "rotate the signing secret", "c2": "rotate a secret", "c3": "invite a member", "c4": "plans and prices"}
QUERIES = {"q1": "rotate secret", "q2": "rotate signing secret", "q3": "member"}
PAIRS = [("q1", "c1"), ("q1", "c2"), ("q1", "c3"), ("q2", "c1"), ("q2", "c2"), ("q3", "c3")]
LISTS = {
    ("bm25", "q1"): [("c2", 8.0), ("c1", 4.0), ("c3", 0.0)],
    ("bm25", "q2"): [("c1", 9.0), ("c2", 6.0)],
    ("dense", "q1"): [("c1", 0.9)],
    ("dense", "q3"): [("c3", 0.7)],
}


def rankings(lists: dict[tuple[str, str], list[tuple[str, float]]]) -> pa.Table:
    rows = [
        {"query_id": query, "retriever": name, "rank": place, "chunk_id": chunk, "score": score, "tenant": "a"}
        for (name, query), found in lists.items()
        for place, (chunk, score) in enumerate(found, 1)
    ]
    return pa.Table.from_pylist(rows, RANKINGS.schema)


@pytest.fixture
def searched(run: Run) -> Run:
    put(run, "queries", queries("a", QUERIES))
    put(run, "chunks", chunks("a", TEXTS))
    put(run, "rankings", rankings(LISTS))
    put(run, "pool", pool("a", PAIRS))
    return run


def evidence(run: Run) -> Evidence:
    tables = run.tables()
    of = TenantChunks(tables, "a")
    with pool_pairs(tables, of) as pairs:
        return gather_evidence(tables, of, pairs)


def test_each_retriever_gives_rank_and_score_and_the_pool_its_fusion(searched: Run) -> None:
    found = rank_features(searched.tables(), "a", np.array([0, 3, 5, 6]))
    assert found.features.shape == (6, 3 * 2 + 4 + 2)
    inverse, logarithm, score = found.features[:, :3].T
    np.testing.assert_allclose(inverse, [61 / 62, 1, 61 / 63, 1, 61 / 62, 0], rtol=1e-6)
    np.testing.assert_allclose(logarithm, np.log([2, 1, 3, 1, 2, 4]), rtol=1e-6)  # not found: below the longest list
    np.testing.assert_allclose(score, [0.5, 1, 0, 1, 0, 0])
    assert found.scores.tolist() == [2, 5]
    assert found.fused_rank.tolist() == [1, 2, 3, 1, 2, 1]


def test_an_encoders_score_is_also_a_feature_as_it_is_and_within_the_query(searched: Run) -> None:
    """bm25 is embedded, `dense` is not; where it did not retrieve a pair, the lowest score of the query counts."""
    put(searched, "rankings", rankings(LISTS | {("dense", "q1"): [("c1", 0.9), ("c3", 0.3)]}))
    found = rank_features(searched.tables(), "a", np.array([0, 3, 5, 6])).features
    np.testing.assert_allclose(found[:, 10], [0.9, 0.3, 0.3, 0, 0, 0.7], rtol=1e-6)
    np.testing.assert_allclose(found[:, 11], [2**0.5, -(0.5**0.5), -(0.5**0.5), 0, 0, 0], atol=1e-6)


def test_features_are_standardized_and_terms_are_of_length_one(searched: Run) -> None:
    found = evidence(searched)
    assert found.n_pairs == len(PAIRS)
    np.testing.assert_allclose(found.features.mean(axis=0), 0, atol=1e-6)
    spread = found.features.std(axis=0)
    assert np.logical_or(np.isclose(spread, 1, atol=1e-5), spread == 0).all()
    np.testing.assert_allclose(np.sqrt(found.terms.multiply(found.terms).sum(axis=1)).ravel(), 1, rtol=1e-6)
    assert found.kernel_columns.tolist() == [2, 5, 12, 13, 14, 15]


def test_queries_that_find_the_same_terms_are_alike(searched: Run) -> None:
    alike = evidence(searched).similarity.toarray()
    assert alike.shape == (3, 3)
    assert (np.diag(alike) == 0).all()
    assert alike[0, 1] > alike[0, 2]
    assert alike[1, 2] == 0


def test_only_the_nearest_queries_are_neighbours(searched: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = evidence(searched).similarity.toarray()
    monkeypatch.setattr("darklode.pipeline.judge.adaptive.pool_features.MAX_NEIGHBORS", 1)
    nearest = evidence(searched).similarity.toarray()
    assert (before[0] > 0).sum() == 2
    np.testing.assert_allclose(nearest[0], [0, before[0, 1], 0])


def test_places_follow_the_fused_score_in_descending_order(searched: Run) -> None:
    rows, field = pool("a", PAIRS), POOL.schema.field("fused_score")
    fused = pa.array([0.1, 0.3, 0.2, 0.4, 0.5, 0.6], field.type)
    put(searched, "pool", rows.set_column(POOL.schema.get_field_index(field.name), field, fused))
    assert rank_features(searched.tables(), "a", np.array([0, 3, 5, 6])).fused_rank.tolist() == [3, 1, 2, 2, 1, 1]
