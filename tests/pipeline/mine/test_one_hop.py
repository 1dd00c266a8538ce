"""A query's own evidence as pairs, by hand: thresholds, days, and what a click takes away."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from scipy.stats import gamma

from darklode.pipeline.base.relations import Relation, materialize
from darklode.pipeline.mine.one_hop import OneHop
from darklode.schemas.mining import ClickSettings
from darklode.schemas.tables import TABLES
from helpers.small_log import NEVER

DAYS = [date(2026, 3, day) for day in range(1, 4)]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        for name in ("click_evidence", "click_prior", "relevance_evidence", "log_queries"):
            opened.register(name, TABLES[name].empty())
        yield opened


def fill(connection: duckdb.DuckDBPyConnection, table: str, *rows: dict[str, Any]) -> None:
    filled = [{"tenant": "t", "query_id": "q"} | row for row in rows]
    connection.register(table, pa.Table.from_pylist(filled, TABLES[table].schema))


def day(doc: str, number: int = 0, clicks: int = 0, exposures: int = 1, **given: Any) -> dict[str, Any]:
    known = {"doc_id": doc, "date": DAYS[number], "clicks": clicks, "exposures": exposures, "satisfied": clicks}
    return known | given


def made(
    connection: duckdb.DuckDBPyConnection, before: str = NEVER, seed: int = 13, **settings: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pairs by clicks and by relevance, of query q of tenant t."""
    hop = OneHop(ClickSettings(**settings), before, seed)
    found = hop.pairs(connection, materialize(connection, "SELECT 't' AS tenant, 'q' AS query_id"))
    return rows(connection, found.click_pairs, "hash"), rows(connection, found.relevance_pairs, "negatives")


def rows(connection: duckdb.DuckDBPyConnection, of: Relation, besides: str) -> list[dict[str, Any]]:
    found = connection.sql(f"SELECT * EXCLUDE (tenant, query_id, {besides}) FROM {of} ORDER BY positive_id")
    listed: list[dict[str, Any]] = found.to_arrow_table().to_pylist()
    return listed


def test_a_click_makes_a_pair_of_the_day_it_came_with_what_was_shown_by_then(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    fill(connection, "click_evidence", day("a"), day("a", 1, clicks=1), day("b", 1), day("later", 2))
    assert made(connection) == ([{"positive_id": "a", "negative_id": "b", "date": DAYS[1]}], [])


def test_where_nothing_was_shown_by_then_the_first_later_day_that_has_anything_counts(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    fill(connection, "click_evidence", day("a", clicks=1), *(day(f"n{number}", 2) for number in range(9)), day("b", 1))
    assert {made(connection, seed=seed)[0][0]["negative_id"] for seed in range(9)} == {"b"}


def test_of_the_whole_period_a_later_document_may_be_drawn_too(connection: duckdb.DuckDBPyConnection) -> None:
    fill(connection, "click_evidence", day("a", clicks=1), day("b"), day("c", 1), day("d", 2))
    drawn = {made(connection, seed=seed, negative_window="period")[0][0]["negative_id"] for seed in range(20)}
    assert drawn == {"b", "c", "d"}


def test_what_was_ever_clicked_is_no_negative_even_later(connection: duckdb.DuckDBPyConnection) -> None:
    fill(connection, "click_evidence", day("a", clicks=1), day("b"), day("b", 2, clicks=1))
    (first, second), _ = made(connection)
    assert (first["negative_id"], second["negative_id"]) == (None, None)


def test_a_click_that_did_not_satisfy_makes_neither(connection: duckdb.DuckDBPyConnection) -> None:
    fill(connection, "click_evidence", day("a", clicks=1), day("b", clicks=1, satisfied=0))
    assert made(connection)[0] == [{"positive_id": "a", "negative_id": None, "date": DAYS[0]}]


@pytest.mark.parametrize(
    ("settings", "positives"),
    [
        ({}, ["a", "b"]),
        ({"min_clicks": 3}, ["a"]),
        ({"confidence": 0.8}, ["b"]),
        ({"min_clicks": 3, "confidence": 0.8}, []),
        ({"min_clicks": 3, "confidence": 0.5}, ["a"]),
        ({"confidence": 0.5}, ["a", "b"]),
        ({"confidence": 0.95}, []),
        ({"min_click_ratio": 2.0, "confidence": 0.5}, ["b"]),
    ],
)
def test_clicks_are_held_against_number_and_expectation(
    connection: duckdb.DuckDBPyConnection, settings: dict[str, Any], positives: list[str]
) -> None:
    """Ratios with a prior of shape and rate 1: a is gamma(5, 3.5), b is gamma(3, 1.1), c is gamma(2, 3)."""
    fill(connection, "click_prior", {"shape": 1.0, "rate": 1.0})
    fill(
        connection,
        "click_evidence",
        day("a", 0, clicks=2, expected=1.0),
        day("a", 1, clicks=2, expected=1.5),
        day("b", 0, clicks=2, expected=0.1),
        day("c", 0, clicks=1, expected=2.0),
    )
    assert [row["positive_id"] for row in made(connection, **settings)[0]] == positives


@pytest.mark.parametrize("tail", [0.1, 0.2, 0.5])
@pytest.mark.parametrize(("shape", "clicks", "expected"), [(0.3, 1, 0.2), (0.5, 3, 2.0), (2.0, 40, 31.5)])
def test_the_bound_is_the_quantile_of_the_ratio(
    connection: duckdb.DuckDBPyConnection, tail: float, shape: float, clicks: int, expected: float
) -> None:
    fill(connection, "click_prior", {"shape": shape, "rate": 0.6})
    fill(connection, "click_evidence", day("a", clicks=clicks, expected=expected))
    exact = float(gamma.ppf(tail, shape + clicks, scale=1 / (0.6 + expected)))
    kept = [made(connection, min_click_ratio=exact * about, confidence=1 - tail)[0] for about in (0.94, 1.06)]
    assert [len(pairs) for pairs in kept] == [1, 0]


def test_where_nothing_was_learned_yet_any_click_counts(connection: duckdb.DuckDBPyConnection) -> None:
    fill(connection, "click_evidence", day("a", clicks=1), day("b"))
    assert made(connection, model="pbm")[0] == [{"positive_id": "a", "negative_id": "b", "date": DAYS[0]}]


def test_a_negative_was_shown_often_enough(connection: duckdb.DuckDBPyConnection) -> None:
    fill(connection, "click_evidence", day("a", 1, clicks=1), day("b", exposures=2), day("b", 1, exposures=1))
    assert [made(connection, min_exposures=least)[0][0]["negative_id"] for least in (3, 4)] == ["b", None]


def test_exposures_where_nobody_looks_make_no_negative(connection: duckdb.DuckDBPyConnection) -> None:
    low = day("low", exposures=9, examinations=0.45), day("low", 1, exposures=9, examinations=0.45)
    fill(connection, "click_evidence", day("a", 1, clicks=1), *low, day("top", examinations=1.0))
    assert [made(connection, min_exposures=least)[0][0]["negative_id"] for least in (1, 1.01)] == ["top", None]
    fill(connection, "click_evidence", day("a", 1, clicks=1), *low)
    assert [made(connection, min_exposures=least)[0][0]["negative_id"] for least in (0.9, 1)] == ["low", None]


def test_the_draw_hangs_on_the_seed_and_a_document_that_comes_later_does_not_change_it(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    exposed = [day(f"n{number}") for number in range(12)]
    fill(connection, "click_evidence", day("a", clicks=1), *exposed)
    drawn = {seed: made(connection, seed=seed)[0][0]["negative_id"] for seed in range(12)}
    assert len(set(drawn.values())) > 3
    fill(connection, "click_evidence", day("a", clicks=1), *exposed, day("new", 1), day("n0", 2))
    assert {seed: made(connection, seed=seed)[0][0]["negative_id"] for seed in range(12)} == drawn


def test_days_of_test_data_are_not_looked_at(connection: duckdb.DuckDBPyConnection) -> None:
    fill(connection, "click_evidence", day("a", 0), day("b", 1, clicks=1), day("a", 2, clicks=1))
    fill(connection, "log_queries", {"date": DAYS[2], "text": "x"})
    fill(connection, "relevance_evidence", {"positive_id": "r", "positive_score": 0.5})
    assert made(connection, before="2026-03-03") == ([{"positive_id": "b", "negative_id": "a", "date": DAYS[1]}], [])


def test_the_rankers_negative_is_the_first_that_nobody_clicked_and_its_positive_is_no_negative(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    listed = {"negative_ids": ["n", "m"], "negative_scores": [0.25, 0.125]}
    fill(connection, "log_queries", {"date": DAYS[0], "text": "x"})
    fill(connection, "relevance_evidence", {"positive_id": "r", "positive_score": 0.5} | listed)
    pair = {"positive_id": "r", "positive_score": 0.5, "date": DAYS[0]}
    fill(connection, "click_evidence", day("a", clicks=1), day("r"))
    click, relevance = made(connection)
    assert click == [{"positive_id": "a", "negative_id": None, "date": DAYS[0]}]
    assert relevance == [pair | {"negative_id": "n", "negative_score": 0.25}]
    fill(connection, "click_evidence", day("n", clicks=1, satisfied=0))
    assert made(connection)[1] == [pair | {"negative_id": "m", "negative_score": 0.125}]
    fill(connection, "click_evidence", day("n", clicks=1), day("m", clicks=1))
    assert made(connection)[1] == [pair | {"negative_id": None, "negative_score": None}]


def test_what_names_it_holds_all_that_can_change_a_pair() -> None:
    hop = OneHop(ClickSettings(min_clicks=3), NEVER, 13)
    assert hop.identity["min_clicks"] == 3
    assert (hop.identity["before"], hop.identity["seed"]) == (NEVER, 13)
    assert set(hop.identity) == {*ClickSettings.model_fields, "before", "seed", "by_session"}


def test_what_is_known_of_a_query_is_not_made_again(connection: duckdb.DuckDBPyConnection) -> None:
    evidence = [day(doc, number % 3, clicks=number % 2) for number, doc in enumerate("abcdef")]
    fill(connection, "click_evidence", *evidence, *(one | {"query_id": "other"} for one in evidence))
    hop, both = OneHop(ClickSettings(), NEVER, 13), "SELECT 't' AS tenant, unnest(['q', 'other']) AS query_id"
    every = hop.pairs(connection, materialize(connection, both))
    known = hop.pairs(connection, materialize(connection, "SELECT 't' AS tenant, 'q' AS query_id"))
    fill(connection, "click_evidence", *(one | {"query_id": "other"} for one in evidence))
    found = replace(hop, previous=known).pairs(connection, materialize(connection, both))
    listed = [[connection.sql(f"FROM {one} ORDER BY ALL").fetchall() for one in of] for of in (found, every)]
    assert listed[0] == listed[1]
    assert {row[1] for row in listed[0][1]} == {"q", "other"}


def test_negatives_come_from_the_lower_half_while_it_has_one(connection: duckdb.DuckDBPyConnection) -> None:
    shown = [day(doc, depth=depth) for doc, depth in (("b", 0.2), ("c", 0.5), ("d", 0.6), ("e", None))]
    fill(connection, "click_evidence", day("a", clicks=1, depth=0.1), *shown)
    for seed in range(8):
        (pair,), _ = made(connection, seed=seed)
        assert pair["negative_id"] == "d"
    exposed = {made(connection, seed=seed, negatives="exposed")[0][0]["negative_id"] for seed in range(40)}
    assert exposed == {"b", "c", "d", "e"}


def test_a_document_stays_in_the_half_in_which_it_was_first(connection: duckdb.DuckDBPyConnection) -> None:
    first = [day("a", clicks=1), day("b", depth=0.9), day("c", depth=0.3)]
    fill(connection, "click_evidence", *first, day("b", 1, depth=0.1), day("c", 1, depth=0.8))
    assert {made(connection, seed=seed)[0][0]["negative_id"] for seed in range(8)} == {"b"}


def test_an_upper_document_of_the_clicks_day_goes_before_a_later_one(connection: duckdb.DuckDBPyConnection) -> None:
    fill(connection, "click_evidence", day("a", clicks=1), day("b", depth=0.1), day("c", 1, depth=0.9))
    assert made(connection)[0][0]["negative_id"] == "b"
    assert made(connection, negative_window="period")[0][0]["negative_id"] == "c"


def test_only_sessions_of_the_querys_split_are_evidence_but_any_click_rules_a_negative_out(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    rows_of_splits = [
        day("a", clicks=1, session_split="train"),
        day("v", clicks=1, session_split="validation"),
        day("b", session_split="validation"),
        day("c", session_split="train"),
        day("n", clicks=1),
        day("v", session_split="train"),
    ]
    fill(connection, "click_evidence", *rows_of_splits)
    fill(connection, "query_clusters", {"split": "train", "date": DAYS[0], "cluster_id": "q"})
    hop = OneHop(ClickSettings(), NEVER, 13, by_session=True)
    found = hop.pairs(connection, materialize(connection, "SELECT 't' AS tenant, 'q' AS query_id"))
    pairs = rows(connection, found.click_pairs, "hash")
    assert [(pair["positive_id"], pair["negative_id"]) for pair in pairs] == [("a", "c"), ("n", "c")]
