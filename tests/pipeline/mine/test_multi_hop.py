"""What queries lend one another, by hand: who may, what is merged, and what contradicts the borrower."""

from collections.abc import Iterator
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from darklode.pipeline.base.relations import materialize
from darklode.pipeline.mine.multi_hop import LendingRules, find_loans, multi_hop, with_lenders
from darklode.pipeline.mine.one_hop import OneHop
from darklode.schemas.mining import ClickSettings
from darklode.schemas.tables import TABLES

DAYS = [date(2026, 3, day) for day in range(1, 4)]
NEVER = "9999-12-31"
Rows = list[dict[str, Any]]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        for name in ("click_evidence", "click_prior", "relevance_evidence", "log_queries", "associations"):
            opened.register(name, TABLES[name].empty())
        yield opened


def fill(connection: duckdb.DuckDBPyConnection, table: str, rows: Rows) -> None:
    filled = [{"tenant": "t"} | row for row in rows]
    connection.register(table, pa.Table.from_pylist(filled, TABLES[table].schema))


def lends(borrower: str, lender: str, kind: str = "click", score: float = 0.5, day: int = 0) -> dict[str, Any]:
    ids = {"query_id": borrower, "associated_query_id": lender}
    return ids | {"kind": kind, "terms": ["x"], "score": score, "date": DAYS[day]}


def shown(query: str, clicked: str, skipped: str = "", day: int = 0) -> Rows:
    """Documents of one letter each."""
    base = {"query_id": query, "date": DAYS[day], "exposures": 1}
    clicks = [base | {"doc_id": doc, "clicks": 1, "satisfied": 1} for doc in clicked]
    return clicks + [base | {"doc_id": doc, "clicks": 0, "satisfied": 0} for doc in skipped]


def ranked(query: str, positive: str, negatives: str = "") -> dict[str, Any]:
    scores = {"positive_score": 0.5, "negative_scores": [0.25] * len(negatives)}
    return {"query_id": query, "positive_id": positive, "negative_ids": list(negatives)} | scores


def pairs(
    connection: duckdb.DuckDBPyConnection,
    associations: Rows,
    evidence: Rows,
    relevance: Rows = [],  # noqa: B006 (it is not changed)
    *,
    most: int = 0,
    before: str = NEVER,
    merge: Any = "strongest",
    seed: int = 13,
    guarded: bool = False,
) -> Rows:
    """All pairs of query q, by positive and source."""
    fill(connection, "associations", associations)
    fill(connection, "click_evidence", evidence)
    fill(connection, "relevance_evidence", relevance)
    queries = {row["query_id"] for row in (*evidence, *relevance)}
    fill(connection, "log_queries", [{"query_id": one, "text": one, "date": DAYS[0]} for one in sorted(queries)])
    borrowers = materialize(connection, "SELECT 't' AS tenant, 'q' AS query_id")
    loans = find_loans(connection, borrowers, before=before)
    made = multi_hop(
        connection,
        borrowers,
        loans,
        OneHop(ClickSettings(negatives="exposed"), before, seed),
        LendingRules(most, merge, guarded),
    )
    rows: Rows = connection.sql(f"FROM {made} ORDER BY positive_id, source").to_arrow_table().to_pylist()
    assert {(row.pop("tenant"), row.pop("query_id")) for row in rows} <= {("t", "q")}
    return rows


def brief(rows: Rows) -> list[tuple[Any, ...]]:
    return [(row["positive_id"], row["negative_id"], row["source"]) for row in rows]


def test_what_differs_from_the_paper_is_as_docs_mining_says(connection: duckdb.DuckDBPyConnection) -> None:
    """Two lenders of a positive make one pair, the better match's; pairs without a negative stay."""
    lent = [lends("q", "l", score=0.5), lends("q", "m", score=0.9)]
    evidence = [*shown("l", "a", "b"), *shown("m", "a", "c"), *shown("q", "d", "e")]
    rows = pairs(connection, lent, evidence, [ranked("q", "e"), ranked("m", "f", "d")], merge="all")
    assert brief(rows) == [
        ("a", "c", "click_multi_hop"),
        ("d", None, "click_one_hop"),  # e was skipped, and is the ranker's positive
        ("e", None, "relevance_one_hop"),
    ]


def test_a_pair_is_lent_on_the_day_on_which_both_are_known(connection: duckdb.DuckDBPyConnection) -> None:
    (row,) = pairs(connection, [lends("q", "l", day=1)], shown("l", "a", "b"))
    assert row == {
        "positive_id": "a",
        "negative_id": "b",
        "positive_score": None,
        "negative_score": None,
        "source": "click_multi_hop",
        "via_query_id": "l",
        "terms": ["x"],
        "date": DAYS[1],
    }
    (row,) = pairs(connection, [lends("q", "l", day=1)], shown("l", "a", day=2))
    assert row["date"] == DAYS[2]


def test_only_evidence_of_the_associations_kind_is_lent(connection: duckdb.DuckDBPyConnection) -> None:
    for kind, positive in (("click", "a"), ("relevance", "r")):
        (row,) = pairs(connection, [lends("q", "l", kind)], shown("l", "a"), [ranked("l", "r")])
        assert (row["positive_id"], row["source"]) == (positive, f"{kind}_multi_hop")


MANY = shown("q", "a", "n") + shown("l", "ab", "m")


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        ("strongest", [("a", "n", "click_one_hop"), ("b", "m", "click_multi_hop")]),
        (
            "all",
            [
                ("a", "m", "click_multi_hop"),
                ("a", "n", "click_one_hop"),
                ("a", "v", "relevance_multi_hop"),
                ("a", "u", "relevance_one_hop"),
                ("b", "m", "click_multi_hop"),
            ],
        ),
    ],
)
def test_a_pair_is_there_by_the_strongest_source_or_by_each(
    connection: duckdb.DuckDBPyConnection, merge: str, expected: list[tuple[str, ...]]
) -> None:
    lent = [lends("q", "l"), lends("q", "l", "relevance")]
    assert brief(pairs(connection, lent, MANY, [ranked("q", "a", "u"), ranked("l", "a", "v")], merge=merge)) == expected


def test_what_is_lent_stays_a_positive_where_the_borrower_merely_skipped_it(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    evidence = shown("q", "a", "xyz") + shown("l", "x", "m")
    found = [brief(pairs(connection, [lends("q", "l")], evidence, seed=seed)) for seed in range(12)]
    assert {rows[1] for rows in found} == {("x", "m", "click_multi_hop")}, "whatever was drawn"
    assert {rows[0] for rows in found} == {("a", "y", "click_one_hop"), ("a", "z", "click_one_hop")}


def test_a_drawn_negative_that_is_lent_as_a_positive_is_drawn_anew(connection: duckdb.DuckDBPyConnection) -> None:
    rows = pairs(connection, [lends("q", "l")], shown("q", "a", "x") + shown("l", "x", "m"))
    assert brief(rows) == [("a", None, "click_one_hop"), ("x", "m", "click_multi_hop")]
    rows = pairs(connection, [lends("q", "l")], shown("l", "x"), [ranked("q", "r", "xy")])
    assert brief(rows) == [("r", "y", "relevance_one_hop"), ("x", None, "click_multi_hop")]


@pytest.mark.slow
@pytest.mark.parametrize("satisfied", [1, 0])
def test_a_lent_negative_that_the_borrower_clicked_is_drawn_anew_from_the_lenders_others(
    connection: duckdb.DuckDBPyConnection, satisfied: int
) -> None:
    own = [row | {"satisfied": satisfied} for row in shown("q", "x")]
    for others, left in (("x", {None}), ("xy", {"y"}), ("xyz", {"y", "z"})):
        evidence = own + shown("l", "a", others)
        drawn = {pairs(connection, [lends("q", "l")], evidence, seed=seed)[0]["negative_id"] for seed in range(12)}
        assert drawn == left
    lent = [lends("q", "l", "relevance")]
    (row, *_) = pairs(connection, lent, own, [ranked("l", "r", "xy")])
    assert (row["positive_id"], row["negative_id"], row["negative_score"]) == ("r", "y", 0.25)


def test_of_many_loans_of_a_document_clicks_then_days_then_the_best_match_count(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    associations = [lends("q", "r", "relevance", 0.9), lends("q", "late", score=0.9), lends("q", "weak", score=0.1)]
    associations.append(lends("q", "best", score=0.2))
    evidence = shown("late", "a", day=2) + shown("weak", "a", day=1) + shown("best", "a", day=1)
    (row,) = pairs(connection, associations, evidence, [ranked("r", "a")])
    assert (row["via_query_id"], row["source"]) == ("best", "click_multi_hop")
    rows = pairs(connection, associations, evidence, [ranked("r", "a")], merge="all")
    assert [(row["via_query_id"], row["source"]) for row in rows] == [
        ("best", "click_multi_hop"),
        ("r", "relevance_multi_hop"),
    ]


@pytest.mark.parametrize(("most", "vias"), [(1, {"l2"}), (2, {"l2", "l1"}), (0, {"l0", "l1", "l2"})])
def test_the_best_lenders_count_and_those_without_evidence_take_no_place(
    connection: duckdb.DuckDBPyConnection, most: int, vias: set[str]
) -> None:
    associations = [lends("q", f"l{number}", score=number / 10) for number in range(3)]
    associations.append(lends("q", "poor", score=0.9))
    evidence = [row for number in range(3) for row in shown(f"l{number}", str(number))]
    assert {row["via_query_id"] for row in pairs(connection, associations, evidence, most=most)} == vias


def test_associations_of_test_days_do_not_count(connection: duckdb.DuckDBPyConnection) -> None:
    associations = [lends("q", "l", day=1)]
    assert len(pairs(connection, associations, shown("l", "a"), before="2026-03-03")) == 1
    assert pairs(connection, associations, shown("l", "a"), before="2026-03-02") == []


def test_lenders_come_along_once(connection: duckdb.DuckDBPyConnection) -> None:
    given = [lends("q", "l"), lends("q", "l", "relevance"), lends("q", "m"), lends("other", "o")]
    fill(connection, "associations", given)
    borrowers = materialize(connection, "SELECT 't' AS tenant, 'q' AS query_id")
    both = with_lenders(connection, borrowers, find_loans(connection, borrowers, before=NEVER))
    assert sorted(connection.sql(f"SELECT query_id FROM {both}").fetchall()) == [("l",), ("m",), ("q",)]


def positions(query: str, documents: str, depth: float, day: int = 0) -> Rows:
    """Documents that were shown for the query and not clicked."""
    return [row | {"depth": depth} for row in shown(query, "", documents, day)]


def test_the_guard_asks_for_the_upper_results_or_two_lenders(connection: duckdb.DuckDBPyConnection) -> None:
    lent = [lends("q", "l"), lends("q", "m", score=0.4)]
    evidence = [
        *shown("l", "abcd", "x"),
        *shown("m", "d", "y"),
        *positions("q", "a", 0.5),
        *positions("q", "b", 0.6),
    ]
    assert brief(pairs(connection, lent, evidence, guarded=True)) == [
        ("a", "x", "click_multi_hop"),
        ("d", "x", "click_multi_hop"),
    ]
    assert [row["positive_id"] for row in pairs(connection, lent, evidence)] == ["a", "b", "c", "d"]


def test_a_guarded_pair_is_of_the_day_on_which_the_guard_lets_it_through(connection: duckdb.DuckDBPyConnection) -> None:
    lent = [lends("q", "l"), lends("q", "m", day=2)]
    evidence = [*shown("l", "abc", ""), *shown("m", "bc", ""), *positions("q", "ab", 0.1, day=1)]
    rows = pairs(connection, lent, evidence, guarded=True)
    assert [(row["positive_id"], row["date"]) for row in rows] == [("a", DAYS[1]), ("b", DAYS[1]), ("c", DAYS[2])]


def test_a_document_that_the_guard_holds_back_is_no_negative(connection: duckdb.DuckDBPyConnection) -> None:
    evidence = [*shown("l", "b", ""), *shown("q", "a", "b")]
    assert brief(pairs(connection, [lends("q", "l")], evidence, guarded=True)) == [("a", None, "click_one_hop")]
    assert brief(pairs(connection, [], evidence, guarded=True)) == [("a", "b", "click_one_hop")]


def test_a_lender_of_two_kinds_is_one_lender(connection: duckdb.DuckDBPyConnection) -> None:
    lent = [lends("q", "l"), lends("q", "l", kind="session")]
    assert pairs(connection, lent, shown("l", "a"), guarded=True) == []
    (row,) = pairs(connection, [lends("q", "l", kind="session")], shown("l", "a"))
    assert (row["source"], row["via_query_id"]) == ("click_multi_hop", "l")


def test_only_queries_of_the_same_split_lend(connection: duckdb.DuckDBPyConnection) -> None:
    fill(connection, "associations", [lends("q", lender) for lender in "lmn"])
    splits = {"q": "train", "l": "train", "m": "validation", "n": None}
    clusters = [
        {"query_id": query, "date": DAYS[0], "cluster_id": query, "split": split} for query, split in splits.items()
    ]
    fill(connection, "query_clusters", clusters)
    borrowers = materialize(connection, "SELECT 't' AS tenant, 'q' AS query_id")
    loans = find_loans(connection, borrowers, before=NEVER, within_split=True)
    assert connection.sql(f"SELECT via_query_id FROM {loans}").fetchall() == [("l",)]
