"""Consecutive queries of a session that share a term or a clicked document."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.mine.association.reformulations import session_associations
from darklode.pipeline.mine.association.stage import ASSOCIATE, SESSION_TABLES, associate
from darklode.pipeline.mine.term_weighting.port import WEIGHT_TERMS
from darklode.schemas.mining import AssociateSettings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put, read
from helpers.small_log import FIRST, HOP, learn, random_log, write_log

SECOND = FIRST + timedelta(1)


def step(query: str, next_query: str, day: date = FIRST, **changes: Any) -> dict[str, Any]:
    ids = {"tenant": "t", "date": day, "query_id": query, "next_query_id": next_query, "searches": 1}
    return ids | {"shares_click": False, "session_split": None} | changes


def associated(
    run: Run, steps: list[dict[str, Any]], terms: Mapping[str, Mapping[str, float]], days: list[date], **splits: str
) -> dict[tuple[str, str], tuple[list[str], float, date]]:
    """Terms, score and date of each association; queries are of the training split unless `splits` says otherwise."""
    term_rows = [
        {"tenant": "t", "query_id": query, "term": term, "importance": importance}
        for query, of_query in terms.items()
        for term, importance in of_query.items()
    ]
    clusters = [
        {"tenant": "t", "query_id": query, "date": FIRST, "cluster_id": query, "split": splits.get(query, "train")}
        for query in terms
    ]
    rows = {"reformulations": steps, "query_terms": term_rows, "query_clusters": clusters}
    for name, given in rows.items():
        put(run, name, pa.Table.from_pylist(given, TABLES[name].schema))
    found = session_associations(run.tables(*rows), days, 0.3)
    all_rows = [row for day in days for table in found.get(day, []) for row in table.to_pylist()]
    assert {row["kind"] for row in all_rows} <= {"session"}
    return {
        (row["query_id"], row["associated_query_id"]): (row["terms"], round(row["score"], 3), row["date"])
        for row in all_rows
    }


def test_a_common_term_must_be_important_in_both(run: Run) -> None:
    terms = {"a": {"x": 1.0, "y": 0.5}, "b": {"x": 0.4, "y": 0.9}, "c": {"x": 0.3, "z": 1.0}}
    found = associated(run, [step("a", "b"), step("b", "c")], terms, [FIRST])
    assert found == {("a", "b"): (["x", "y"], 0.5, FIRST), ("b", "a"): (["y", "x"], 0.5, FIRST)}


def test_a_common_click_is_enough_from_its_day_on(run: Run) -> None:
    steps = [step("a", "b"), step("b", "a", SECOND, shares_click=True)]
    terms = {"a": {"x": 1.0}, "b": {"y": 1.0}}
    assert associated(run, steps, terms, [FIRST]) == {}
    found = associated(run, steps, terms, [FIRST, SECOND])
    assert found == {("a", "b"): ([], 0.0, SECOND), ("b", "a"): ([], 0.0, SECOND)}


def test_only_sessions_of_both_queries_split_count(run: Run) -> None:
    terms = {query: {"x": 1.0} for query in "abcd"}
    splits = {"c": "validation", "d": "validation"}
    steps = [step(*pair, session_split=split) for pair in ("ab", "ac", "cd") for split in ("train",)]
    steps.append(step("c", "d", SECOND, session_split="validation"))
    found = associated(run, steps, terms, [FIRST, SECOND], **splits)
    assert {pair: day for pair, (_, _, day) in found.items()} == {
        ("a", "b"): FIRST,
        ("b", "a"): FIRST,
        ("c", "d"): SECOND,
        ("d", "c"): SECOND,
    }


def weigh_words(tables: Tables, output: Output) -> None:
    """Every word of a query has the importance .5."""
    rows = [
        {"tenant": row["tenant"], "query_id": row["query_id"], "term": word, "importance": 0.5}
        for row in tables.read("log_queries").to_pylist()
        for word in sorted(set(row["normal_form"].split()))
    ]
    output.write("query_terms", pa.Table.from_pylist(rows, TABLES["query_terms"].schema))


def night(run: Run, log: Any, *, by_session: bool) -> None:
    write_log(run, log)
    learn(run, replace(HOP, by_session=by_session))
    execute(run, WEIGHT_TERMS, weigh_words)
    guarded = AssociateSettings(rule="guarded")
    execute(run, ASSOCIATE.reading(*SESSION_TABLES), lambda tables, output: associate(tables, output, guarded))


@pytest.mark.parametrize("by_session", [False, True])
def test_nights_in_any_order_give_the_bytes_of_one_run(tmp_path: Path, by_session: bool) -> None:
    searched = random_log(4, days=4, searches=60)
    log = {day: [replace(one, minute=one.minute // 30) for one in searches] for day, searches in searched.items()}
    once, nightly = Run(str(tmp_path / "once")), Run(str(tmp_path / "nightly"))
    night(once, log, by_session=by_session)
    order = [list(log)[place] for place in (2, 0, 3, 1)]
    for seen in range(1, 5):
        night(nightly, {day: log[day] for day in order[:seen]}, by_session=by_session)
    assert nightly.manifest(ASSOCIATE).outputs == once.manifest(ASSOCIATE).outputs  # type: ignore[union-attr]
    assert sum(row["kind"] == "session" for row in read(once, "associations")) > 10
