"""Pairs against a literal reading of their definition; nights that look only at what was touched, and end the same."""

import hashlib
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

import darklode.pipeline.mine.pairs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.mine.one_hop import OneHop
from darklode.schemas.mining import ClickSettings
from helpers.small_log import FIRST, HOP, NEVER, Log, Search, associate, mine, query_id, random_log, rank

Row = dict[str, Any]
Key = tuple[str, str]


def lot(*parts: object) -> int:
    """DuckDB's md5_number_lower: the last eight bytes of the hash, the first of them the least."""
    return int.from_bytes(hashlib.md5("\0".join(map(str, parts)).encode()).digest()[8:], "little")


def first_seen(log: Log, before: str) -> dict[Key, tuple[date, str]]:
    seen: dict[Key, tuple[date, str]] = {}
    for day, searches in sorted(log.items()):
        for search in searches:
            if day.isoformat() < before:
                seen.setdefault((search.tenant, query_id(search.query)), (day, search.query))
    return seen


class Evidence:
    """A query's documents: days of clicks, first day shown, exposures."""

    def __init__(self, log: Log, before: str) -> None:
        self.clicks: dict[Key, dict[str, list[date]]] = defaultdict(lambda: defaultdict(list))
        self.shown: dict[Key, dict[str, list[date]]] = defaultdict(lambda: defaultdict(list))
        for day, searches in sorted(log.items()):
            for search in searches:
                if day.isoformat() < before:
                    for place, doc in enumerate(search.shown, 1):
                        key = search.tenant, query_id(search.query)
                        self.shown[key][doc].append(day)
                        if place in search.clicked:
                            self.clicks[key][doc].append(day)


def literal(log: Log, hop: OneHop, most: int) -> list[Row]:
    """All pairs, one query after the other."""
    queries, evidence = first_seen(log, hop.before), Evidence(log, hop.before)
    rows = [
        {"tenant": tenant, "query_id": query, "text": text, "date": day}
        for (tenant, query), (day, text) in queries.items()
    ]
    ranked = {(row["tenant"], row["query_id"]): row for row in rank(rows)}
    clicked = {key: click_pairs(key, evidence, hop, ranked.get(key)) for key in queries}
    relevant = {key: relevance_pair(queries[key][0], evidence, key, ranked.get(key)) for key in queries}
    lent = associate(rows)
    return [row for key in queries for row in of_query(key, clicked, relevant, lent, most, hop.seed)]


def click_pairs(key: Key, evidence: Evidence, hop: OneHop, ranked: Mapping[str, Any] | None) -> list[Row]:
    found = []
    for doc, days in evidence.clicks[key].items():
        if len(days) < hop.settings.min_clicks:
            continue
        own = lot(hop.seed, *key, doc)
        skipped = [
            (own ^ lot(hop.seed, *key, other), other)
            for other, shown in evidence.shown[key].items()
            if other not in evidence.clicks[key]
            and shown[0] <= days[0]
            and len(shown) >= hop.settings.min_exposures
            and not (ranked and ranked["positive_id"] == other)
        ]
        negative = min(skipped)[1] if skipped else None
        found.append({"positive_id": doc, "negative_id": negative, "date": days[0], "source": "click_one_hop"})
    return found


def relevance_pair(day: date, evidence: Evidence, key: Key, ranked: Mapping[str, Any] | None) -> list[Row]:
    if ranked is None:
        return []
    negative = None if ranked["negative_id"] in evidence.clicks[key] else ranked["negative_id"]
    return [{"positive_id": ranked["positive_id"], "negative_id": negative, "date": day, "source": "relevance_one_hop"}]


def of_query(
    key: Key,
    clicked: dict[Key, list[Row]],
    relevant: dict[Key, list[Row]],
    lent: list[dict[str, Any]],
    most: int,
    seed: int,
) -> list[Row]:
    positives = {row["positive_id"] for row in clicked[key]}
    own = [*clicked[key], *(row for row in relevant[key] if row["positive_id"] not in positives)]
    positives |= {row["positive_id"] for row in own}
    against = {row["negative_id"] for row in own}
    offers: dict[str, list[tuple[tuple[object, ...], Row]]] = defaultdict(list)
    for kind, evidence in (("click", clicked), ("relevance", relevant)):
        lenders = [
            one
            for one in lent
            if (one["tenant"], one["query_id"]) == key
            and one["kind"] == kind
            and evidence[key[0], str(one["associated_query_id"])]
        ]
        lenders.sort(key=lambda one: (-one["score"], one["date"], lot(seed, key[1], one["associated_query_id"])))
        for one in lenders[: most or None]:
            via = str(one["associated_query_id"])
            for row in evidence[key[0], via]:
                if row["positive_id"] not in positives | against:
                    day = max(row["date"], one["date"])
                    order = (kind, day, -one["score"], via)
                    borrowed = row | {"date": day, "source": f"{kind}_multi_hop", "via_query_id": via}
                    offers[row["positive_id"]].append((order, borrowed))
    borrowed = [min(some, key=lambda pair: pair[0])[1] for some in offers.values()]
    positives |= {row["positive_id"] for row in borrowed}
    for row in borrowed:
        row["negative_id"] = None if row["negative_id"] in positives else row["negative_id"]
    return [{"tenant": key[0], "query_id": key[1], "via_query_id": None} | row for row in own + borrowed]


def plain(rows: list[Row]) -> list[tuple[object, ...]]:
    names = ("tenant", "query_id", "positive_id", "negative_id", "source", "via_query_id", "date")
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


CASES = [
    (HOP, 2),
    (HOP, 0),
    (OneHop(ClickSettings(min_clicks=2, min_exposures=2), NEVER, 5), 1),
    (replace(HOP, before=(FIRST + timedelta(4)).isoformat()), 3),
]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("number", range(5))
def test_pairs_are_those_of_the_definition(run: Run, number: int, case: int) -> None:
    hop, most = CASES[case]
    log = random_log(100 + number, searches=20)
    mine(run, log, hop=hop, most=most)
    found = run.tables("mined_pairs").read("mined_pairs").to_pylist()
    expected = literal(log, hop, most)
    assert plain(found) == plain(expected)
    assert {row["source"] for row in found} >= {"click_one_hop", "click_multi_hop", "relevance_one_hop"}


def test_a_night_looks_only_at_what_its_evidence_touched(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    log = random_log(7)
    mine(run, log)
    looked: list[tuple[str, ...]] = []
    real = darklode.pipeline.mine.pairs.touched

    def watch(connection: Any, delta: Any, earlier: Any, news: Any, hop: OneHop) -> Any:
        found = real(connection, delta, earlier, news, hop)
        looked.append(tuple(row[0] for row in connection.sql(f"SELECT query_id FROM {found}").fetchall()))
        return found

    monkeypatch.setattr(darklode.pipeline.mine.pairs, "touched", watch)
    alone = Search("default", "s1", 5, "nobody else asks this", ("d1", "d2"), frozenset({1}))
    mine(run, {**log, FIRST + timedelta(20): [alone]})
    assert looked == [(query_id(alone.query),)]


def by_click(run: Run) -> dict[tuple[str, date], list[str]]:
    rows = run.tables("triplets").read("triplets").to_pylist()
    return {(row["positive_id"], row["date"]): row["negative_ids"] for row in rows if row["source"] == "click_one_hop"}


def test_a_document_clicked_today_stops_being_yesterdays_negative(run: Run) -> None:
    first = Search("default", "s1", 1, "zzz", ("d1", "d2"), frozenset({1}))
    mine(run, {FIRST: [first]})
    assert by_click(run) == {("d1", FIRST): ["d2"]}
    again = replace(first, clicked=frozenset({2}))
    mine(run, {FIRST: [first], FIRST + timedelta(1): [again]})
    assert by_click(run) == {("d1", FIRST): [], ("d2", FIRST + timedelta(1)): []}


def files(run: Run, *tables: str) -> dict[str, bytes | None]:
    names = [name for table in tables for name in run.store.sizes(f"tables/{table}", recursive=True)]
    return {name: run.store.read(name) for name in names}


OUTCOME = ("mined_pairs", "triplets", "log_queries", "query_clusters")


@pytest.mark.parametrize("number", range(12))
def test_nights_end_like_one_run_over_all_days(tmp_path: Path, number: int) -> None:
    log = random_log(number)
    once, nightly = Run(str(tmp_path / "once")), Run(str(tmp_path / "nightly"))
    apart = bool(number % 2)
    mine(once, log, apart=apart)
    order = list(log)
    if number % 3:
        random.Random(number).shuffle(order)
    for seen in range(1, len(order) + 1):
        mine(nightly, {day: log[day] for day in order[:seen]}, apart=apart)
    assert files(nightly, *OUTCOME) == files(once, *OUTCOME)
    assert once.tables("triplets").rows("triplets") > (30 if apart else 50)
