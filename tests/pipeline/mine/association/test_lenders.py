"""Who may borrow and lend by which key, by hand, and the bound on lenders."""

from collections.abc import Iterator
from datetime import date

import duckdb
import pyarrow as pa
import pytest

from darklode.pipeline.base.relations import Relation, materialize
from darklode.pipeline.mine.association.lenders import (
    TermKeys,
    borrowing_queries,
    bound_lenders,
    build_term_keys,
    count_over_bound,
    pairs_since_sql,
)
from darklode.schemas.mining import AssociateSettings

DAYS = [date(2026, 3, day) for day in range(1, 6)]
NO_WIDE_PAIR = """
    SELECT 0 AS q, 0 AS lender, DATE '2026-01-01' AS date, DATE '2026-01-01' AS lender_date, 0.0 AS score WHERE false
"""
Query = tuple[int, dict[int, float]]
"""The day, and the importance of each term, by the term's number."""


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def placed(connection: duckdb.DuckDBPyConnection, *queries: Query) -> tuple[Relation, Relation]:
    """What `algorithm.number` makes: the queries, and their terms by place."""
    rows = [
        {"q": q, "date": DAYS[day], "t": t, "importance": importance, "term_rank": term_rank}
        for q, (day, terms) in enumerate(queries)
        for term_rank, (t, importance) in enumerate(sorted(terms.items(), key=lambda one: (-one[1], one[0])), 1)
    ]
    types = {"q": pa.int32(), "date": pa.date32(), "t": pa.int32(), "importance": pa.float32(), "term_rank": pa.int32()}
    connection.register("given_terms", pa.Table.from_pylist(rows, pa.schema(types)))
    named = [{"q": q, "date": DAYS[day], "tenant": "t", "query_id": f"id{q}"} for q, (day, _) in enumerate(queries)]
    schema = pa.schema({"q": pa.int32(), "date": pa.date32(), "tenant": pa.string(), "query_id": pa.string()})
    connection.register("given_queries", pa.Table.from_pylist(named, schema))
    return materialize(connection, "FROM given_queries"), materialize(connection, "FROM given_terms")


def keyed(connection: duckdb.DuckDBPyConnection, *queries: Query) -> tuple[TermKeys, Relation]:
    numbered, terms = placed(connection, *queries)
    return build_term_keys(connection, terms, AssociateSettings(rule="paper", th_click=0.5, th_rel=0.3)), numbered


def who(connection: duckdb.DuckDBPyConnection, relation: Relation) -> list[int]:
    return [q for (q,) in connection.sql(f"SELECT q FROM {relation} ORDER BY q, key").fetchall()]


def pairs(
    connection: duckdb.DuckDBPyConnection, *queries: Query, most: int = 0, since: int = 0
) -> list[tuple[int, int, int, str]]:
    """Day, borrower, lender and kind of each association."""
    keys, numbered = keyed(connection, *queries)
    none = materialize(connection, NO_WIDE_PAIR)
    sql = pairs_since_sql(bound_lenders(connection, keys, numbered, most), none)
    found = connection.execute(sql, {"since": DAYS[since]}).fetchall()
    return [(DAYS.index(day), q, lender, kind) for day, q, lender, kind, _ in found]


def test_a_query_borrows_by_its_best_two_terms_and_lends_by_all_that_are_strong(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    keys, _ = keyed(connection, (0, {1: 0.9, 2: 0.2}), (0, {1: 0.8, 2: 0.7, 3: 0.6}), (0, {1: 0.9}))
    assert who(connection, keys.click_borrowers) == [0, 1, 2]
    # Query 1 lends by 1+2 and by 1 alone; query 0 lends by 1 alone, since its second term is weak.
    assert who(connection, keys.click_lenders) == [0, 1, 1, 2]


def test_an_old_query_borrows_again_only_where_a_new_one_shares_its_key(connection: duckdb.DuckDBPyConnection) -> None:
    keys, _ = keyed(connection, (0, {1: 0.9}), (0, {2: 0.9}), (1, {1: 0.9, 3: 0.8}))
    none = materialize(connection, NO_WIDE_PAIR)
    again = [borrowing_queries(connection, keys, none, DAYS[day]) for day in range(3)]
    assert [sorted(connection.sql(f"SELECT q FROM {one}").fetchall()) for one in again] == [
        [(0,), (1,), (2,)],
        [(0,), (2,)],
        [],
    ]


def test_an_importance_of_the_threshold_is_not_above_it(connection: duckdb.DuckDBPyConnection) -> None:
    assert pairs(connection, (0, {1: 0.9}), (0, {1: 0.5})) == [
        (0, 0, 1, "relevance"),
        (0, 1, 0, "click"),
        (0, 1, 0, "relevance"),
    ]
    keys, _ = keyed(connection, (0, {1: 0.3}))
    assert who(connection, keys.relevance) == []


def test_a_relevance_key_is_the_set_of_the_best_four(connection: duckdb.DuckDBPyConnection) -> None:
    same, turned = {1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6}, {1: 0.6, 2: 0.7, 3: 0.8, 4: 0.9}
    keys, _ = keyed(connection, (0, same), (1, turned), (1, {1: 0.9, 2: 0.8, 3: 0.7}))
    assert connection.sql(f"SELECT len(terms), queries FROM {keys.top_sets} ORDER BY ALL").fetchall() == [
        (3, 1),
        (4, 2),
    ]


def test_nobody_lends_to_itself_and_a_pair_is_of_the_later_day(connection: duckdb.DuckDBPyConnection) -> None:
    found = pairs(connection, (0, {1: 0.9}), (2, {1: 0.8}))
    assert found == [(2, borrower, 1 - borrower, kind) for borrower in (0, 1) for kind in ("click", "relevance")]


def test_a_night_gives_what_is_new_whoever_borrows(connection: duckdb.DuckDBPyConnection) -> None:
    log: list[Query] = [(0, {1: 0.9}), (1, {1: 0.8}), (2, {1: 0.7})]
    every = pairs(connection, *log)
    for since in range(4):
        assert sorted(pairs(connection, *log, since=since)) == sorted(one for one in every if one[0] >= since)


def test_of_a_crowded_key_those_searched_first_lend_and_of_a_day_those_of_most_importance(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    log: list[Query] = [(1, {1: 0.6}), (0, {1: 0.55}), (1, {1: 0.9}), (2, {1: 0.99})]
    lenders = {lender for _, _, lender, kind in pairs(connection, *log, most=2) if kind == "click"}
    assert lenders == {1, 2}
    assert {lender for _, _, lender, _ in pairs(connection, *log)} == {0, 1, 2, 3}


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_what_the_bound_costs_is_counted_by_day(connection: duckdb.DuckDBPyConnection, most: int) -> None:
    log: list[Query] = [(0, {1: 0.9}), (0, {1: 0.8}), (1, {1: 0.7}), (3, {1: 0.6})]
    keys, numbered = keyed(connection, *log)
    cut = count_over_bound(connection, bound_lenders(connection, keys, numbered, most))
    every, kept = pairs(connection, *log), pairs(connection, *log, most=most)
    lost = [day for day, *_ in every]
    for day, *_ in kept:
        lost.remove(day)
    assert cut == {DAYS[day]: lost.count(day) for day in set(lost)}
