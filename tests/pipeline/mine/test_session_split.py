"""The assignment of sessions and users to splits, and that no session supports pairs of both."""

from dataclasses import replace
from datetime import timedelta

import duckdb

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.mine.session_split import SessionSplit, session_split
from helpers.small_log import FIRST, HOP, Search, mine, query_id


def draw(unit: SessionSplit, rows: str) -> list[str | None]:
    sql = f"SELECT {unit.split_sql(f'({unit.id_sql})')} FROM (VALUES {rows}) AS t(tenant, session_id, user_id)"
    return [split for (split,) in duckdb.sql(sql).fetchall()]


def test_users_win_over_sessions_and_positives_assign_nothing() -> None:
    assert session_split(("positive",), 0.1, 1) is None
    assert session_split(("session", "positive"), 0.1, 1) == SessionSplit("session", 0.1, 1)
    assert session_split(("session", "user"), 0.1, 1) == SessionSplit("user", 0.1, 1)


def test_a_share_of_the_sessions_is_validation_and_a_missing_id_is_neither() -> None:
    rows = ", ".join(f"('t', 's{number}', NULL)" for number in range(2000))
    splits = draw(SessionSplit("session", 0.2, 7), f"{rows}, ('t', NULL, 'u')")
    assert splits[-1] is None
    assert 0.15 < splits.count("validation") / 2000 < 0.25
    assert splits.count("train") + splits.count("validation") == 2000


def test_the_sessions_of_a_user_are_in_one_split_but_tenants_are_independent() -> None:
    of_user = SessionSplit("user", 0.5, 7)
    splits = [draw(of_user, f"('t', 'a{n}', 'u{n}'), ('t', 'b{n}', 'u{n}')") for n in range(20)]
    assert all(first == second for first, second in splits)
    assert {first for first, _ in splits} == {"train", "validation"}
    tenants = [draw(of_user, f"('t', 's', 'u{number}'), ('v', 's', 'u{number}')") for number in range(20)]
    assert any(first != second for first, second in tenants)


def test_a_query_is_in_the_split_of_the_first_session_of_its_first_day(run: Run) -> None:
    """A query's first search decides, in the order of time, whatever the later sessions."""
    validation, train = _sessions_of_each_split()
    log = {
        FIRST: [_search(train, 5, "apple"), _search(validation, 3, "apple"), _search(train, 7, "pear")],
        FIRST + timedelta(1): [_search(validation, 1, "pear")],
    }
    mine(run, log, hop=replace(HOP, by_session=True))
    rows = run.tables("query_clusters").read("query_clusters").to_pylist()
    assert {row["query_id"]: row["split"] for row in rows} == {
        query_id("apple"): "validation",
        query_id("pear"): "train",
    }
    triplets = run.tables("triplets").read("triplets").to_pylist()
    clicked = [row for row in triplets if row["source"] == "click_one_hop"]
    assert {(row["query"], row["split"], row["positive_id"]) for row in clicked} == {
        ("apple", "validation", "d3"),
        ("pear", "train", "d7"),
    }


def _search(session: str, minute: int, query: str) -> Search:
    """A search with a click on the document of its minute."""
    return Search("default", session, minute, query, (f"d{minute}", "d0"), frozenset({1}))


def _sessions_of_each_split() -> tuple[str, str]:
    names = [f"s{number}" for number in range(50)]
    rows = ", ".join(f"('default', '{name}', NULL)" for name in names)
    splits = draw(SessionSplit("session", 0.3, 13), rows)
    return names[splits.index("validation")], names[splits.index("train")]
