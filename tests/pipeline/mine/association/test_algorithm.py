"""Associations: those of Algorithm 1, none else, whatever the order, the threads and the nights."""

import hashlib
import random
from collections import Counter
from datetime import date, timedelta
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from darklode.pipeline.mine.association.algorithm import Associations
from darklode.schemas.mining import AssociateSettings
from helpers.algorithm_1 import associations, guarded, guarded_clicks, guarded_match, match, top
from helpers.logs_of_terms import FIRST, LOGS, Log, found, planned, random_log, tables_of

RANDOM = st.integers(0, 10**6).map(lambda seed: random_log(seed, tenants=30))
ONE = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5}
OTHER = {"b": 0.9, "c": 0.8, "d": 0.7, "e": 0.6, "a": 0.4}
THRESHOLDS = st.sampled_from([0.0, 0.3, 0.30000001192092896, 0.5, 0.9])


def oracle(log: Log, th_click: float, th_rel: float) -> dict[tuple[str, ...], tuple[Any, ...]]:
    expected = {}
    for tenant in {owner for owner, _ in log}:
        for (one, other, kind), (terms, score) in associations(planned(log, tenant), th_click, th_rel).items():
            day = FIRST + timedelta(days=max(log[tenant, one][0], log[tenant, other][0]))
            expected[tenant, one, other, kind] = (list(terms), float(score), day)
    return expected


def keyed(rows: list[dict[str, Any]]) -> dict[tuple[str, ...], tuple[Any, ...]]:
    keys = [(r["tenant"], r["query_id"], r["associated_query_id"], r["kind"]) for r in rows]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, [(r["terms"], r["score"], r["date"]) for r in rows], strict=True))


def log_of(*queries: dict[str, float]) -> Log:
    return {("t", f"q{number}"): (0, scores) for number, scores in enumerate(queries)}


def kinds(log: Log, **settings: Any) -> set[tuple[str, str, str]]:
    return {(row["query_id"], row["associated_query_id"], row["kind"]) for row in found(log, **settings)}


BOTH_WAYS = {(a, b, kind) for a, b in (("q0", "q1"), ("q1", "q0")) for kind in ("click", "relevance")}


@pytest.mark.parametrize("seed", range(12))
def test_thousands_of_random_logs_give_those_of_algorithm_1(seed: int) -> None:
    """Each tenant is a case of its own: 300 a seed."""
    log = random_log(seed, tenants=300)
    th_click, th_rel = [(0.5, 0.3), (0.3, 0.3), (0.0, 0.0), (0.7, 0.30000001192092896)][seed % 4]
    assert keyed(found(log, th_click=th_click, th_rel=th_rel, max_lenders=0)) == oracle(log, th_click, th_rel)


@settings(max_examples=60, deadline=None)
@given(log=LOGS, th_click=THRESHOLDS, th_rel=THRESHOLDS)
@example(log_of({"a": 1, "b": 0.5}, {"a": 0.5, "b": 1}), 0.5, 0.5)
@example(log_of(ONE, OTHER), 0.5, 0.3)
def test_they_are_those_of_algorithm_1(log: Log, th_click: float, th_rel: float) -> None:
    assert keyed(found(log, th_click=th_click, th_rel=th_rel, max_lenders=0)) == oracle(log, th_click, th_rel)


def guarded_oracle(log: Log, th_click: float) -> dict[tuple[str, ...], tuple[Any, ...]]:
    expected = {}
    for tenant in {owner for owner, _ in log}:
        for (one, other, kind), (terms, score) in guarded_clicks(planned(log, tenant), th_click).items():
            day = FIRST + timedelta(days=max(log[tenant, one][0], log[tenant, other][0]))
            expected[tenant, one, other, kind] = (list(terms), float(score), day)
    return expected


@pytest.mark.parametrize("seed", range(3))
def test_the_guarded_rule_is_that_of_a_loop(seed: int) -> None:
    log = random_log(seed, tenants=300)
    rows = found(log, rule="guarded", th_click=0.3, max_lenders=0)
    expected = guarded_oracle(log, 0.3)
    assert keyed([row for row in rows if row["kind"] == "click"]) == expected
    assert {len(terms) for terms, *_ in expected.values()} == {1, 2, 3}
    paper = found(log, th_click=0.3, max_lenders=0)
    assert [row for row in rows if row["kind"] == "relevance"] == [r for r in paper if r["kind"] == "relevance"]


def test_the_guarded_rule_by_hand() -> None:
    assert guarded({"a": 1.0, "b": 0.9, "c": 0.8}) == ["a", "b"]
    assert guarded({"a": 1.0, "b": 0.9, "c": 0.8, "d": 0.7, "e": 0.6}) == ["a", "b", "c"]
    assert guarded({"a": 1.0, "b": 0.9, "c": 0.3, "d": 0.2}) == ["a", "b"], "they make half of it"
    assert guarded({"a": 1.0, "b": 0.9, "c": 0.9}) == ["a", "b", "c"], "b and c are equal"
    assert guarded({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}) == [], "whichever three would be a lottery"
    assert guarded({"a": 1.0, "b": 1.0}) == ["a", "b"]
    assert guarded({"a": 1.0}) == ["a"]
    assert not guarded({})
    assert guarded_match({"a": 1.0}, {"a": 1.0, "b": 0.4}, 0.5)
    assert not guarded_match({"a": 1.0}, {"a": 1.0, "b": 0.6}, 0.5), "the lender is about b as well"


def test_two_strong_terms_are_not_enough_for_a_long_query() -> None:
    long, other = {"a": 1.0, "b": 0.9, "c": 0.8, "d": 0.7, "e": 0.6}, {"a": 1.0, "b": 0.9, "x": 0.9}
    assert ("q0", "q1", "click") in kinds(log_of(long, other))
    assert kinds(log_of(long, other), rule="guarded") == set()
    both = kinds(log_of(long, other | {"c": 0.8}), rule="guarded")
    assert both == {("q0", "q1", "click")}


def test_a_query_of_one_term_borrows_of_no_longer_one() -> None:
    log = log_of({"a": 1.0}, {"a": 1.0, "b": 0.9}, {"a": 1.0, "b": 0.2})
    clicks = {(one, other) for one, other, kind in kinds(log, rule="guarded") if kind == "click"}
    assert clicks == {("q0", "q2"), ("q2", "q1")}


def test_the_oracle_is_the_papers() -> None:
    both, only = {"a": 0.9, "b": 0.8}, {"a": 0.9, "b": 0.8, "c": 0.95}
    assert match(both, only, 0.5, 0.3) == (True, False, False)
    assert match(only, both, 0.5, 0.3) == (False, True, False)
    assert match(both, {"a": 0.6, "b": 0.51}, 0.5, 0.3) == (True, True, True)
    assert match(both, {"a": 0.6, "b": 0.4}, 0.5, 0.3) == (False, True, True)
    assert match({}, {}, 0.0, 0.0) == (False, False, False)
    assert top(2, {"b": 0.5, "a": 0.5, "c": 0.5}) == ["a", "b"]


def test_equal_queries_are_associated_both_ways() -> None:
    assert kinds(log_of({"a": 1, "b": 0.9}, {"a": 1, "b": 0.9})) == BOTH_WAYS


def test_a_threshold_must_be_passed_in_float32() -> None:
    exact, above = log_of({"a": 0.3}, {"a": 0.3}), log_of({"a": 0.30000004}, {"a": 0.30000004})
    assert kinds(exact, th_click=0.3, th_rel=0.3) == set()
    assert kinds(above, th_click=0.3, th_rel=0.3) == BOTH_WAYS


def test_a_query_without_terms_associates_with_nothing() -> None:
    assert kinds(log_of({}, {}, {"a": 1.0}), th_click=0, th_rel=0) == set()


def test_one_term_is_enough_to_borrow() -> None:
    log = log_of({"a": 1.0}, {"a": 0.8, "b": 0.9, "c": 1.0})
    assert kinds(log) == {("q0", "q1", "click")}
    assert found(log)[0]["terms"] == ["a"]


def test_five_strong_terms_meet_in_another_order() -> None:
    """Neither Top4 is the other's: the only case that no key of terms finds."""
    rows = [row for row in found(log_of(ONE, OTHER)) if row["kind"] == "relevance"]
    assert [row["terms"] for row in rows] == [list("abcd"), list("bcde")]
    assert [round(row["score"], 6) for row in rows] == [0.4, 0.4]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(log=LOGS)
def test_tenants_never_meet(log: Log) -> None:
    alone = {owner: {key: log[key] for key in log if key[0] == owner} for owner in ("t", "u")}
    apart = [row for part in alone.values() for row in found(part)]
    assert keyed(found(log)) == keyed(apart)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(log=LOGS | RANDOM, most=st.sampled_from([0, 1, 2, 5]), rule=st.sampled_from(["paper", "guarded"]))
def test_nights_together_are_one_run(log: Log, most: int, rule: str) -> None:
    whole = found(log, rule=rule, th_click=0.2, max_lenders=most)
    nights = []
    for night in range(4):
        so_far = {key: query for key, query in log.items() if query[0] <= night}
        nights += found(so_far, since=FIRST + timedelta(days=night), rule=rule, th_click=0.2, max_lenders=most)
    assert nights == whole


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    log=LOGS | RANDOM, seed=st.integers(0, 1000), asked=st.sampled_from([("paper", 0), ("paper", 2), ("guarded", 1)])
)
def test_neither_order_nor_threads_matter(log: Log, seed: int, asked: tuple[str, int]) -> None:
    settings = dict(zip(("rule", "max_lenders"), asked, strict=True))
    shuffled = list(log.items())
    random.Random(seed).shuffle(shuffled)
    assert found(dict(shuffled), threads=4, **settings) == found(log, threads=1, **settings)


def bounded(log: Log, most: int) -> tuple[set[tuple[str, ...]], Counter[date]]:
    """What is left of all associations when each set of terms has at most `most` lenders, and how many go by date."""
    every = oracle(log, 0.2, 0.3)
    kept, cut = set(), Counter[date]()
    for key, (terms, _, day) in every.items():
        tenant, one, other, kind = key
        scores = planned(log, tenant)
        if kind == "relevance" and set(top(4, scores[one])) != set(top(4, scores[other])):
            kept.add(key)
            continue
        lenders = []
        for query, theirs in scores.items():
            if kind == "relevance" and set(top(4, theirs)) != set(terms):
                continue
            floor = min(theirs.get(term, 0) for term in terms)
            if floor > (0.2 if kind == "click" else 0.3):
                draw = int.from_bytes(hashlib.md5(query.encode()).digest()[8:], "little")
                lenders.append((log[tenant, query][0], -floor, draw, query))
        if other in [query for *_, query in sorted(lenders)[:most]]:
            kept.add(key)
        else:
            cut[day] += 1
    return kept, cut


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(log=LOGS | RANDOM, most=st.integers(1, 4))
def test_the_bound_keeps_the_lenders_searched_first_and_counts_the_rest(log: Log, most: int) -> None:
    log = {key: (day, {t: s for t, s in scores.items() if s not in (0.1, 0.3)}) for key, (day, scores) in log.items()}
    kept, cut = bounded(log, most)
    queries, terms = tables_of(log)
    with duckdb.connect() as connection:
        connection.register("log_queries", queries)
        connection.register("query_terms", terms)
        one = Associations(connection, AssociateSettings(rule="paper", th_click=0.2, max_lenders=most))
        rows = [row for _, piece in one.rows() for row in piece.to_pylist()]
    assert keyed(rows).keys() == kept
    assert one.over_bound == cut


def test_a_long_query_is_no_burden() -> None:
    long = {f"w{n:02}": 1 - n / 100 for n in range(50)}
    log = log_of(*[long] * 20, {"w00": 1.0, "w30": 0.9})
    expected = oracle(log, 0.5, 0.3)
    assert keyed(found(log)) == expected
    assert ("t", "q20", "q0", "click") in expected


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_pieces_are_cut_at_dates_and_sizes(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darklode.pipeline.mine.days.PIECE_ROWS", rows)
    log: Log = {("t", f"q{n}"): (n % 3, {"a": 1.0}) for n in range(5)}
    queries, terms = tables_of(log)
    with duckdb.connect() as connection:
        connection.register("log_queries", queries)
        connection.register("query_terms", terms)
        pieces = list(Associations(connection, AssociateSettings(rule="paper")).rows())
    days = [day for day, _ in pieces]
    assert days == sorted(days)
    assert all(piece.num_rows <= rows for _, piece in pieces)
    for day in set(days):
        sizes = [piece.num_rows for other, piece in pieces if other == day]
        assert set(sizes[:-1]) <= {rows}
    assert sum(piece.num_rows for _, piece in pieces) == len(oracle(log, 0.5, 0.3)) == 40
