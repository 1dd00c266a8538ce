"""How like real queries generated ones are: what tells them apart, and which clusters they are near."""

import pyarrow as pa
import pytest

from darklode.pipeline.generate.realism import (
    COVERAGE_MEASURE,
    DISCRIMINATION_MEASURE,
    cluster_coverage,
    compare_queries,
    discrimination_auc,
    shares,
)

ALIKE = [f"how to {verb} the {thing}" for verb in ("reset", "renew", "open", "close", "find") for thing in "abcdefgh"]


def test_what_is_alike_cannot_be_told_apart() -> None:
    halves = [[one for place, one in enumerate(ALIKE) if (place + place // 8) % 2 == odd] for odd in (0, 1)]
    same = discrimination_auc(*halves, 1)
    other = discrimination_auc(halves[0], [f"please {one} now" for one in halves[1]], 1)
    assert same is not None
    assert other is not None
    assert same < 0.7 < 0.95 < other
    assert discrimination_auc(ALIKE[:5], ALIKE, 1) is None, "too few to say"


def test_lengths_and_questions_are_compared() -> None:
    rows = compare_queries(pa.chunked_array([["a b", "how a"]]), pa.chunked_array([["a b c", "a b c d?"]]), 1)
    found = {row["measure"]: (row["real"], row["generated"]) for row in rows}
    assert found["queries"] == (2.0, 2.0)
    assert found["words, percentile 50"] == (2.0, 3.5)
    assert found["share of questions (how, what, …, ?)"] == (0.5, 0.5)
    assert found[DISCRIMINATION_MEASURE] == (None, None)
    nothing = compare_queries(pa.chunked_array([["a b"]]), pa.chunked_array([pa.array([], pa.string())]), 1)
    assert nothing[1]["generated"] is None


def real(**clusters: list[str]) -> pa.Table:
    rows = [{"tenant": "t", "group": group, "text": text} for group, texts in clusters.items() for text in texts]
    return pa.Table.from_pylist(rows)


def made(*texts: str) -> pa.Table:
    ids = pa.array([f"g{number}" for number in range(len(texts))], pa.string())
    return pa.table({"query_id": ids, "text": pa.array(texts, pa.string())})


REAL = real(
    password=["reset my password", "password forgotten"],
    customers=["export customers as csv"],
    invoices=["export invoices as csv"],
    orders=["export orders as csv"],
    limits=["api rate limits"],
)


def test_a_cluster_is_covered_by_a_query_as_near_as_other_clusters_are() -> None:
    rows, usual = cluster_coverage(REAL, made("where can I reset the password", "quarterly zebra"), 1)
    found = {row["group"]: (row["queries"], row["query_id"], row["covered"]) for row in rows.to_pylist()}
    assert found["password"] == (2, "g0", True)
    assert found["limits"][2] is False
    assert usual is not None
    assert 0 < usual < 1
    (row,) = shares(rows, usual)
    assert row == {"measure": COVERAGE_MEASURE, "real": usual, "generated": 0.2}


def test_without_queries_nothing_is_covered_and_nothing_is_near() -> None:
    rows, _ = cluster_coverage(REAL, made(), 1)
    assert {(row["query_id"], row["similarity"], row["covered"]) for row in rows.to_pylist()} == {(None, None, False)}


def test_with_one_cluster_or_none_nobody_knows_what_is_near() -> None:
    rows, usual = cluster_coverage(real(password=["reset my password"]), made("reset my password"), 1)
    assert usual is None
    assert [row["covered"] for row in rows.to_pylist()] == [None]
    assert shares(rows, usual) == [{"measure": COVERAGE_MEASURE, "real": None, "generated": None}]
    none, usual = cluster_coverage(REAL.slice(0, 0), made("a"), 1)
    assert (none.num_rows, usual) == (0, None)


@pytest.mark.slow
def test_a_sample_is_the_same_again() -> None:
    many = real(**{f"c{number}": [f"query number {number}"] for number in range(5100)})
    rows, _ = cluster_coverage(many, made("query number 7"), 3)
    assert rows.num_rows == 5000
    assert rows.equals(cluster_coverage(many, made("query number 7"), 3)[0])
