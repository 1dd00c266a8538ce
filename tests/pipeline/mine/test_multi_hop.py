"""What queries lend one another, by hand: who may, what goes before what, and what contradicts the borrower."""

from collections.abc import Iterator
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from darklode.pipeline.base.relations import Relation, keep
from darklode.pipeline.mine.multi_hop import loans_to, multi_hop, with_lenders
from darklode.pipeline.mine.one_hop import OneHopPairs
from darklode.schemas.tables import TABLES

DAYS = [date(2026, 3, day) for day in range(1, 4)]
KEY = {"tenant": pa.string(), "query_id": pa.string()}
PAIR = KEY | {"positive_id": pa.string(), "negative_id": pa.string(), "date": pa.date32()}
SCORED = PAIR | {"positive_score": pa.float32(), "negative_score": pa.float32()}


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def relation(
    connection: duckdb.DuckDBPyConnection, types: dict[str, pa.DataType], rows: list[dict[str, Any]]
) -> Relation:
    connection.register("given", pa.Table.from_pylist([{"tenant": "t"} | row for row in rows], pa.schema(types)))
    return keep(connection, "FROM given")


def lends(borrower: str, lender: str, kind: str = "click", score: float = 0.5, day: int = 0) -> dict[str, Any]:
    ids = {"tenant": "t", "query_id": borrower, "associated_query_id": lender}
    return ids | {"kind": kind, "terms": ["x"], "score": score, "date": DAYS[day]}


def pair(query: str, positive: str, negative: str | None = None, day: int = 0, **scores: float) -> dict[str, Any]:
    return {"query_id": query, "positive_id": positive, "negative_id": negative, "date": DAYS[day], **scores}


def borrowed(
    connection: duckdb.DuckDBPyConnection,
    associations: list[dict[str, Any]],
    click: list[dict[str, Any]],
    relevance: list[dict[str, Any]] = [],  # noqa: B006 (it is not changed)
    *,
    most: int = 0,
    before: str = "9999-12-31",
) -> list[dict[str, Any]]:
    """All pairs of query q, by positive."""
    connection.register("associations", pa.Table.from_pylist(associations, TABLES["associations"].schema))
    borrowers = relation(connection, KEY, [{"query_id": "q"}])
    loans = loans_to(connection, borrowers, before=before)
    own = OneHopPairs(relation(connection, PAIR, click), relation(connection, SCORED, relevance))
    made = multi_hop(connection, borrowers, loans, own, most=most, seed=13)
    rows: list[dict[str, Any]] = connection.sql(f"FROM {made} ORDER BY positive_id").to_arrow_table().to_pylist()
    assert {(row.pop("tenant"), row.pop("query_id")) for row in rows} <= {("t", "q")}
    return rows


def test_a_pair_is_lent_on_the_day_on_which_both_are_known(connection: duckdb.DuckDBPyConnection) -> None:
    (row,) = borrowed(connection, [lends("q", "l", day=1)], [pair("l", "a", "b", day=0)])
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
    (row,) = borrowed(connection, [lends("q", "l", day=1)], [pair("l", "a", day=2)])
    assert row["date"] == DAYS[2]


def test_only_evidence_of_the_associations_kind_is_lent(connection: duckdb.DuckDBPyConnection) -> None:
    click, relevance = [pair("l", "a")], [pair("l", "r", positive_score=0.5)]
    for kind, positive in (("click", "a"), ("relevance", "r")):
        (row,) = borrowed(connection, [lends("q", "l", kind)], click, relevance)
        assert (row["positive_id"], row["source"]) == (positive, f"{kind}_multi_hop")


def test_ones_own_evidence_goes_before_what_is_lent(connection: duckdb.DuckDBPyConnection) -> None:
    click = [pair("q", "a", "n"), pair("l", "a", "b"), pair("l", "n", "b"), pair("l", "c", "a")]
    rows = borrowed(connection, [lends("q", "l")], click, [pair("q", "a", positive_score=0.9)])
    assert [(row["positive_id"], row["negative_id"], row["source"]) for row in rows] == [
        ("a", "n", "click_one_hop"),  # by clicks, not by relevance, and not by what is lent
        ("c", None, "click_multi_hop"),  # the own positive a is no negative of the borrower
    ]  # and n, the borrower's own negative, is no positive


def test_of_many_loans_of_a_document_clicks_then_days_then_the_best_match_count(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    associations = [lends("q", "r", "relevance", 0.9), lends("q", "late", score=0.9), lends("q", "weak", score=0.1)]
    associations.append(lends("q", "best", score=0.2))
    click = [pair("late", "a", day=2), pair("weak", "a", day=1), pair("best", "a", day=1)]
    relevance = [pair("r", "a", day=0, positive_score=0.9)]
    (row,) = borrowed(connection, associations, click, relevance)
    assert (row["via_query_id"], row["source"]) == ("best", "click_multi_hop")


@pytest.mark.parametrize(("most", "vias"), [(1, {"l2"}), (2, {"l2", "l1"}), (0, {"l0", "l1", "l2"})])
def test_the_best_lenders_count_and_those_without_evidence_take_no_place(
    connection: duckdb.DuckDBPyConnection, most: int, vias: set[str]
) -> None:
    associations = [lends("q", f"l{number}", score=number / 10) for number in range(3)]
    associations.append(lends("q", "poor", score=0.9))
    rows = borrowed(connection, associations, [pair(f"l{number}", f"d{number}") for number in range(3)], most=most)
    assert {row["via_query_id"] for row in rows} == vias


def test_associations_of_test_days_do_not_count(connection: duckdb.DuckDBPyConnection) -> None:
    associations = [lends("q", "l", day=1)]
    assert len(borrowed(connection, associations, [pair("l", "a")], before="2026-03-03")) == 1
    assert borrowed(connection, associations, [pair("l", "a")], before="2026-03-02") == []


def test_lenders_come_along_once(connection: duckdb.DuckDBPyConnection) -> None:
    associations = [lends("q", "l"), lends("q", "l", "relevance"), lends("q", "m"), lends("other", "o")]
    connection.register("associations", pa.Table.from_pylist(associations, TABLES["associations"].schema))
    borrowers = relation(connection, KEY, [{"query_id": "q"}])
    both = with_lenders(connection, borrowers, loans_to(connection, borrowers, before="9999-12-31"))
    assert sorted(connection.sql(f"SELECT query_id FROM {both}").fetchall()) == [("l",), ("m",), ("q",)]
