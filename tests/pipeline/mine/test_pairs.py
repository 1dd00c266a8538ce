"""Pairs against a literal reading of their definition; nights that look only at what was touched, and end the same."""

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import darklode.pipeline.mine.pairs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.mine.multi_hop import LendingRules
from darklode.pipeline.mine.one_hop import OneHop
from darklode.schemas.mining import ClickSettings, Merge
from helpers.elsewhere import Elsewhere
from helpers.repeats import mostly_slow
from helpers.small_log import (
    FIRST,
    HOP,
    NEVER,
    SESSIONS,
    Log,
    Search,
    associate,
    corpus,
    mine,
    normal_form,
    query_id,
    random_log,
    rank,
)

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
                seen.setdefault((search.tenant, query_id(search.query)), (day, normal_form(search.query)))
    return seen


def split_of_session(tenant: str, session: str) -> str:
    draw = lot(SESSIONS.seed, "session", tenant, session) / 2**64
    return "validation" if draw < SESSIONS.validation_share else "train"


Splits = dict[Key, str | None]


class Evidence:
    """A query's documents: days of clicks, first day shown, exposures; and the documents that anybody clicked.

    Args:
        log: the searches.
        before: first day that does not count.
        splits: the queries' splits if only sessions of a query's own split count, else None.
    """

    def __init__(self, log: Log, before: str, splits: Splits | None) -> None:
        self.clicks: dict[Key, dict[str, list[date]]] = defaultdict(lambda: defaultdict(list))
        self.clicked: dict[Key, set[str]] = defaultdict(set)
        self.depths: dict[Key, dict[str, list[tuple[date, float]]]] = defaultdict(lambda: defaultdict(list))
        self.shown: dict[Key, dict[str, list[date]]] = defaultdict(lambda: defaultdict(list))
        for day, searches in sorted(log.items()):
            for search in searches:
                if day.isoformat() < before:
                    key = search.tenant, query_id(search.query)
                    self.clicked[key] |= {doc for place, doc in enumerate(search.shown, 1) if place in search.clicked}
                    if splits and split_of_session(search.tenant, search.session) != splits[key]:
                        continue
                    for place, doc in enumerate(search.shown, 1):
                        self.shown[key][doc].append(day)
                        self.depths[key][doc].append((day, place / len(search.shown)))
                        if place in search.clicked:
                            self.clicks[key][doc].append(day)

    def is_high(self, key: Key, doc: str) -> bool:
        """Whether the document was in the upper half of a result list on its first day."""
        return min(self.depths[key][doc])[1] <= 0.5

    def high_day(self, key: Key, doc: str) -> date | None:
        """First day on which the document was in the upper half of a result list."""
        return min((day for day, depth in self.depths[key][doc] if depth <= 0.5), default=None)


@dataclass(frozen=True)
class Definition:
    """What the definition says of pairs, one query after the other."""

    log: Log
    hop: OneHop
    most: int
    merge: Merge
    splits: Splits | None = None
    guarded: bool = False

    @cached_property
    def queries(self) -> dict[Key, tuple[date, str]]:
        return first_seen(self.log, self.hop.before)

    @cached_property
    def evidence(self) -> Evidence:
        return Evidence(self.log, self.hop.before, self.splits)

    @cached_property
    def rows(self) -> list[Row]:
        return [
            {"tenant": tenant, "query_id": query, "normal_form": text, "date": day}
            for (tenant, query), (day, text) in self.queries.items()
        ]

    @cached_property
    def ranked(self) -> dict[Key, Row]:
        return {(row["tenant"], row["query_id"]): row for row in rank(self.rows)}

    @cached_property
    def lent(self) -> list[Row]:
        return associate(self.rows)

    def of_all(self) -> list[Row]:
        return [row for key in self.queries for row in self.of_query(key)]

    def own(self, key: Key) -> list[Row]:
        """A query's own pairs; `negatives` are all that may be drawn, in the order of the draw."""
        found = [
            {"positive_id": doc, "date": days[0], "kind": "click", "negatives": self.skipped(key, doc, days[0])}
            for doc, days in self.evidence.clicks[key].items()
            if len(days) >= self.hop.settings.min_clicks
        ]
        row = self.ranked.get(key)
        if row:
            listed = [doc for doc in row["negative_ids"] if doc not in self.evidence.clicked[key]]
            base = {"positive_id": row["positive_id"], "date": self.queries[key][0], "kind": "relevance"}
            found.append(base | {"negatives": listed})
        return found

    def skipped(self, key: Key, positive: str, day: date) -> list[str]:
        low = self.hop.settings.negatives == "lower_half"
        own, by_day = lot(self.hop.seed, *key, positive), self.hop.settings.negative_window == "day"
        places = [
            (
                max(shown[0], day) if by_day else day,
                low and self.evidence.is_high(key, doc),
                own ^ lot(self.hop.seed, *key, doc),
                doc,
            )
            for doc, shown in self.evidence.shown[key].items()
            if doc not in self.evidence.clicked[key]
            and len(shown) >= self.hop.settings.min_exposures
            and self.ranked.get(key, {}).get("positive_id") != doc
        ]
        return [doc for *_, doc in sorted(places)]

    def offers(self, key: Key) -> Iterator[Row]:
        """What is lent to a query: of each kind and positive the first, then from the best match. A document that the
        guard holds back has no date.
        """
        for kind in ("click", "relevance"):
            of_positive: dict[str, list[tuple[tuple[Any, ...], Row]]] = defaultdict(list)
            for one in self.lenders(key, kind):
                via = str(one["associated_query_id"])
                for row in self.own((key[0], via)):
                    day = max(row["date"], one["date"])
                    offer = row | {"date": day, "source": f"{kind}_multi_hop", "via_query_id": via}
                    if row["kind"] == kind:
                        of_positive[row["positive_id"]].append(((day, -one["score"], via), offer))
            for doc, offers in of_positive.items():
                (_, first), *others = sorted(offers, key=itemgetter(0))
                if self.guarded and kind == "click":
                    high = self.evidence.high_day(key, doc)
                    days = [max(first["date"], high)] if high else []
                    first |= {"date": min([*days, *(order[0] for order, _ in others)], default=None)}
                yield first

    def lends(self, via: str, key: Key) -> bool:
        assert self.splits
        return self.splits[key] is not None and self.splits[key[0], via] == self.splits[key]

    def lenders(self, key: Key, kind: str) -> list[Row]:
        found = [
            one
            for one in self.lent
            if (one["tenant"], one["query_id"], one["kind"]) == (*key, kind)
            and (not self.splits or self.lends(str(one["associated_query_id"]), key))
            and any(row["kind"] == kind for row in self.own((key[0], str(one["associated_query_id"]))))
        ]
        by_hash = {one["associated_query_id"]: lot(self.hop.seed, key[1], one["associated_query_id"]) for one in found}
        found.sort(key=lambda one: (-one["score"], one["date"], by_hash[one["associated_query_id"]]))
        return found[: self.most or None]

    def of_query(self, key: Key) -> list[Row]:
        own = [row | {"source": f"{row['kind']}_one_hop", "via_query_id": None} for row in self.own(key)]
        found = [*own, *self.offers(key)]  # the strongest first
        against = {row["positive_id"] for row in found} | self.evidence.clicked[key]
        found = [row for row in found if row["date"]]
        if self.merge == "strongest":
            found = list({row["positive_id"]: row for row in reversed(found)}.values())
        for row in found:
            row["negative_id"] = next((doc for doc in row["negatives"] if doc not in against), None)
        return [{"tenant": key[0], "query_id": key[1]} | row for row in found]


def plain(rows: list[Row]) -> list[tuple[object, ...]]:
    names = ("tenant", "query_id", "positive_id", "negative_id", "source", "via_query_id", "date")
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


LOW = ClickSettings(negatives="lower_half")
CASES: list[tuple[OneHop, LendingRules]] = [
    (HOP, LendingRules(2, "strongest", guarded=False)),
    (HOP, LendingRules(0, "all", guarded=False)),
    (OneHop(ClickSettings(negative_window="period"), NEVER, 11), LendingRules(0, "all", guarded=True)),
    (OneHop(ClickSettings(min_clicks=2, min_exposures=2), NEVER, 5), LendingRules(1, "all", guarded=False)),
    (replace(HOP, before=(FIRST + timedelta(4)).isoformat()), LendingRules(3, "strongest", guarded=False)),
    (replace(HOP, settings=LOW, by_session=True), LendingRules(0, "all", guarded=True)),
]
SOURCES = {"click_one_hop", "click_multi_hop", "relevance_one_hop", "relevance_multi_hop"}


def logs_beside_each_other(numbers: range) -> dict[date, list[Search]]:
    """Random logs in one: the tenants of each are its own, and those of different logs never meet."""
    log = defaultdict[date, list[Search]](list)
    for number in numbers:
        for day, searches in random_log(number, searches=20).items():
            log[day] += [replace(search, tenant=f"{search.tenant} {number}") for search in searches]
    return dict(log)


@pytest.mark.parametrize("case", mostly_slow(range(len(CASES)), fast=(0, len(CASES) - 1)))
def test_pairs_are_those_of_the_definition(run: Run, case: int) -> None:
    hop, rules = CASES[case]
    numbers = range(100, 105)
    log = logs_beside_each_other(numbers)
    tenants = {search.tenant for searches in log.values() for search in searches}
    mine(run, log, hop=hop, rules=rules, docs=corpus(tenants=sorted(tenants)))
    found = run.tables("mined_pairs").read("mined_pairs").to_pylist()
    clusters = run.tables("query_clusters").read("query_clusters").to_pylist()
    splits = {(row["tenant"], row["query_id"]): row["split"] for row in clusters} if hop.by_session else None
    assert plain(found) == plain(Definition(log, hop, rules.max_lenders, rules.merge, splits, rules.guarded).of_all())
    if splits:
        assert set(splits.values()) >= {"train", "validation"}
        return
    for number in numbers:
        sources = {row["source"] for row in found if row["tenant"].endswith(f" {number}")}
        assert sources >= (SOURCES if rules.merge == "all" else {"click_one_hop", "click_multi_hop"})


@pytest.mark.slow
def test_a_night_looks_only_at_what_its_evidence_touched(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    log = random_log(7)
    mine(run, log)
    looked: list[tuple[str, ...]] = []
    real = darklode.pipeline.mine.pairs.touched_queries

    def watch(connection: Any, delta: Any, earlier: Any, news: Any, hop: OneHop) -> Any:
        found = real(connection, delta, earlier, news, hop)
        looked.append(tuple(row[0] for row in connection.sql(f"SELECT query_id FROM {found[0]}").fetchall()))
        return found

    monkeypatch.setattr(darklode.pipeline.mine.pairs, "touched_queries", watch)
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


@pytest.mark.slow
def test_days_and_queries_elsewhere_end_like_one_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darklode.pipeline.mine.pairs, "SHARD_QUERIES", 4)
    log, at_home, elsewhere = random_log(3), Run(str(tmp_path / "here")), Elsewhere(run.store, 3)
    hop, rules = CASES[0]
    mine(at_home, log, hop=hop, rules=rules)
    mine(run, log, hop=hop, rules=rules, spread=elsewhere)
    assert files(run, "click_evidence", "query_spellings", *OUTCOME) == files(
        at_home, "click_evidence", "query_spellings", *OUTCOME
    )
    assert elsewhere.names == [
        *(f"click_evidence {day}" for day in sorted(log)),
        *(f"mined_pairs {number} of 3" for number in (1, 2, 3)),
    ]
    assert not run.store.sizes("progress", recursive=True)


OUTCOME = ("mined_pairs", "triplets", "log_queries", "query_clusters")


@pytest.mark.parametrize("number", mostly_slow(range(12), fast=1))
def test_nights_end_like_one_run_over_all_days(tmp_path: Path, number: int) -> None:
    log = random_log(number)
    once, nightly = Run(str(tmp_path / "once")), Run(str(tmp_path / "nightly"))
    hop, rules = CASES[number % len(CASES)]
    apart = bool(number % 2)
    mine(once, log, hop=hop, rules=rules, apart=apart)
    order = list(log)
    if number % 3:
        random.Random(number).shuffle(order)
    for seen in range(1, len(order) + 1):
        mine(nightly, {day: log[day] for day in order[:seen]}, hop=hop, rules=rules, apart=apart)
    assert files(nightly, *OUTCOME) == files(once, *OUTCOME)
    assert once.tables("triplets").rows("triplets") > (10 if apart else 15)
