"""What a run says of its pairs, as numbers: by hand for a pool of four, and told apart by tenant and by list."""

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.judge.features import ENCODER_PRIOR_VARIANCE, PRIOR_VARIANCE, RankingFeatures
from darklode.pipeline.judge.pairs import pair_blocks
from darklode.schemas.tables import POOL, RANKINGS
from helpers.judge_tables import chunks, queries
from helpers.runs import put

TEXTS = {"c1": "rotate the secret key", "c2": "close a ticket", "c3": "rotate"}
LISTS = [
    ("q1", "bm25", 1, "c1", 7.5),
    ("q1", "bm25", 2, "c3", 2.5),
    ("q1", "o'dense", 1, "c2", 0.5),
    ("q1", "o'dense", 2, "c1", -0.25),
    ("q2", "o'dense", 1, "c2", 0.75),
]
POOLED = [("q1", "c1", 2, 1, 0.03), ("q1", "c2", 1, 1, 0.02), ("q1", "c3", 1, 2, 0.01), ("q2", "c2", 1, 1, 0.02)]
SCORES, BM25, BM25_RANK, DENSE, DENSE_RANK, FUSED, BEST, FOUND_BY = range(0, 7), 0, 1, 2, 3, 4, 5, 6


def lists(tenant: str, rows: list[tuple[str, str, int, str, float]]) -> pa.Table:
    names = ("query_id", "retriever", "rank", "chunk_id", "score")
    return RANKINGS.rows({"tenant": [tenant] * len(rows)} | dict(zip(names, zip(*rows, strict=True), strict=True)))


def pooled(tenant: str) -> pa.Table:
    query, chunk, found_by, best, fused = (list(column) for column in zip(*POOLED, strict=True))
    columns = {"query_id": query, "chunk_id": chunk, "best_rank": best, "fused_score": fused}
    return POOL.rows({"tenant": [tenant] * len(query), "retrievers": [["x"] * n for n in found_by]} | columns)


@pytest.fixture
def findings(run: Run) -> Callable[..., tuple[RankingFeatures, pa.Table]]:
    def build(rows: list[tuple[str, str, int, str, float]] = LISTS) -> tuple[RankingFeatures, pa.Table]:
        asked = {"q1": "rotate the key", "q2": "ticket"}
        put(run, "queries", pa.concat_tables(queries(tenant, asked) for tenant in "ab"))
        put(run, "chunks", pa.concat_tables(chunks(tenant, TEXTS) for tenant in "ab"))
        put(run, "pool", pa.concat_tables(pooled(tenant) for tenant in "ab"))
        stranger = [(query, name, rank, chunk, 99.0) for query, name, rank, chunk, _ in LISTS]
        put(run, "rankings", pa.concat_tables([lists("a", rows), lists("b", stranger)]))
        tables = run.tables("queries", "chunks", "pool", "rankings")
        own = TenantChunks(tables, "a")
        return RankingFeatures(own), pa.concat_tables(pair_blocks(tables, own))

    return build


Built = Callable[..., tuple[RankingFeatures, pa.Table]]


def measured(built: tuple[RankingFeatures, pa.Table]) -> NDArray[np.float64]:
    return built[0](built[1])


def test_scores_ranks_and_the_pool_are_read_off_the_lists(findings: Built) -> None:
    found = measured(findings())
    assert found[:, BM25].tolist() == [7.5, 2.5, 2.5, 0.0], "not in a list: the list's lowest; no list: 0"
    assert found[:, DENSE].tolist() == [-0.25, 0.5, -0.25, 0.75]
    assert found[:, BM25_RANK].tolist() == pytest.approx([1, 0, 61 / 62, 0])
    assert found[:, DENSE_RANK].tolist() == pytest.approx([61 / 62, 1, 0, 1])
    assert found[:, FUSED].tolist() == pytest.approx([0.03, 0.02, 0.01, 0.02])
    assert found[:, BEST].tolist() == pytest.approx([0, 0, math.log(2), 0])
    assert found[:, FOUND_BY].tolist() == [2, 1, 1, 1]


def test_words_and_lengths_follow(findings: Built) -> None:
    found = measured(findings())[:, FOUND_BY + 1 :]
    coverage, query, chunk = found[:, 0], found[:, -2], found[:, -1]
    assert coverage[0] == 1.0
    assert coverage[0] > coverage[2] > coverage[1] == 0.0
    assert query.tolist() == pytest.approx(np.log1p([14, 14, 14, 6]))
    assert chunk.tolist() == pytest.approx(np.log1p([21, 14, 6, 14]))


def test_words_that_match_in_part_count_by_their_trigrams(findings: Built) -> None:
    found = measured(findings())
    cosine, share = found[:, -4], found[:, -3]
    assert share[0] == 1.0, "chunk c1 has all words of the query"
    assert 1.0 > share[2] > share[1] == 0.0
    assert 1.0 > cosine[0] > cosine[1] == 0.0


def test_an_encoders_score_is_penalized_less(findings: Built) -> None:
    """bm25 is an embedded retriever, o'dense is not."""
    built = findings()
    variance = built[0].prior_variance
    assert variance.shape == measured(built).shape[1:]
    assert variance[DENSE] == ENCODER_PRIOR_VARIANCE
    assert np.delete(variance, DENSE).tolist() == pytest.approx([PRIOR_VARIANCE / len(variance)] * (len(variance) - 1))


def test_pairs_may_come_in_any_order_and_any_company(findings: Built) -> None:
    measure, pairs = findings()
    whole = measure(pairs)
    assert np.array_equal(measure(pairs.take([3, 0, 2])), whole[[3, 0, 2]])
    assert np.array_equal(measure(pairs.slice(1, 1)), whole[1:2])


def test_of_a_pair_outside_the_pool_nothing_is_known(findings: Built) -> None:
    measure, pairs = findings()
    place = pairs.schema.get_field_index("chunk_id")
    stranger = pairs.set_column(place, pairs.schema.field(place), pa.array(["c1", "c2", "c9", "c2"]))
    assert np.isnan(measure(stranger)).any(axis=1).tolist() == [False, False, True, False]


def test_another_list_is_another_measure(findings: Built) -> None:
    first, _ = findings()
    again, _ = findings()
    other, _ = findings([*LISTS[:-1], ("q2", "o'dense", 1, "c2", 0.5)])
    assert first.measure_id == again.measure_id != other.measure_id
