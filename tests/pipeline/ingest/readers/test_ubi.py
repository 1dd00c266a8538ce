"""Logs of User Behavior Insights: queries told elsewhere, lists that were shown, actions of other kinds."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.errors import TooManyRejects
from helpers.ingesting import lines, write
from helpers.log_ingesting import logs_of
from helpers.runs import SHARED

SAMPLE = SHARED / "collections/ubi-esci-sample"


def event(action: str = "impression", doc: str | None = "d1", place: int | None = 1, **more: Any) -> dict[str, Any]:
    about = {"object": {"object_id": doc, "object_id_field": "sku"}, "position": {"ordinal": place}}
    usual = {"query_id": "q1", "client_id": "c", "timestamp": "2026-03-02T10:00:00Z", "user_query": "Laptop Bag"}
    return {"action_name": action, "application": "shop", "event_attributes": about} | usual | more


def search(query: str | None = "Laptop Bag", query_id: str = "q1", day: int = 2, **more: Any) -> dict[str, Any]:
    time = f"2026-03-{day:02d}T09:59:59Z"
    return {"query_id": query_id, "client_id": "c", "timestamp": time, "user_query": query, "query": "{dsl}"} | more


def test_impressions_and_clicks(tmp_path: Path) -> None:
    rows = [event(place=0), event(doc="d2", place=1, session_id="s"), event("click", "d2", 1), event("View", "d3", 2)]
    write(tmp_path / "log/ubi_events.jsonl", lines(*rows, event("click", "d2", 1)))
    got = logs_of(tmp_path / "log", tmp_path / "run")
    keys = ("search_id", "session_id", "query", "doc_id", "position", "clicked")
    assert sorted(tuple(row[key] for key in keys) for row in got.rows) == [
        ("q1", "c", "Laptop Bag", "d1", 1, False),
        ("q1", "c", "Laptop Bag", "d2", 2, True),
        ("q1", "c", "Laptop Bag", "d2", 2, True),
        ("q1", "c", "Laptop Bag", "d3", 3, False),
        ("q1", "s", "Laptop Bag", "d2", 2, False),
    ]
    assert set(got.column("user_id")) == {"c"}
    assert list(got.manifest.facts["sources"]) == ["ubi"]


def test_the_arm_of_an_experiment_is_an_attribute_of_the_event(tmp_path: Path) -> None:
    object_of = {"object": {"object_id": "d1"}, "position": {"ordinal": 1}}
    rows = [event(event_attributes=object_of | {"arm": "blue"}), event("click", event_attributes=object_of)]
    write(tmp_path / "log/ubi_events.jsonl", lines(*rows))
    assert logs_of(tmp_path / "log", tmp_path / "run").column("variant") == ["blue", None]


def test_other_actions_and_events_without_an_object_are_turned_away(tmp_path: Path) -> None:
    rows = [
        event("add_to_cart"),
        event("login", user_query=None, event_attributes=None),
        event("click", None),
        event("click", event_attributes={"object": None}),
        event(None),  # type: ignore[arg-type]
        event("mail bob@example.com"),
        event("click", event_attributes="text"),
        event("click", 17, "3"),  # type: ignore[arg-type]
    ]
    write(tmp_path / "log/ubi_events.ndjson", lines(*rows))
    got = logs_of(tmp_path / "log", tmp_path / "run")
    assert [(row["doc_id"], row["position"]) for row in got.rows] == [("17", 3)]
    assert sorted(got.reasons, key=lambda reason: reason[1] or 0) == [
        ("action add_to_cart is neither impression nor click", 1),
        ("action login is neither impression nor click", 2),
        ("empty doc_id", 3),
        ("empty doc_id", 4),
        ("missing action", 5),
        ("action mail [email] is neither impression nor click; if it is a click, add it to logs.click_actions", 6),
        ("empty doc_id", 7),
    ]


def test_settings_say_which_actions_are_clicks(tmp_path: Path) -> None:
    rows = [
        event(name, f"d{place}") for place, name in enumerate(["item_click", "Product_Click", "global_click", "tap"])
    ]
    write(tmp_path / "log/ubi_events.jsonl", lines(event(doc="shown"), *rows))
    got = logs_of(tmp_path / "log", tmp_path / "run")
    assert {row["doc_id"]: row["clicked"] for row in got.rows} == {"shown": False, "d0": True, "d1": True}
    assert [reason for reason, _ in got.reasons] == [
        "action global_click is neither impression nor click",
        "action tap is neither impression nor click; if it is a click, add it to logs.click_actions",
    ]
    told = logs_of(tmp_path / "log", tmp_path / "other", click_actions=["Tap"])
    assert {row["doc_id"]: row["clicked"] for row in told.rows} == {"shown": False, "d3": True}
    assert len(told.rejects) == 3


@pytest.mark.parametrize("action", ['{"index":{"_index":"ubi_events","_id":"7"}}', '{ "create" : {} }'])
def test_bulk_files_are_read_without_their_action_lines(tmp_path: Path, action: str) -> None:
    known = [event(user_query=None), event("click", user_query=None), event("click", None)]
    write(tmp_path / "log/ubi_events.ndjson", "".join(f"{action}\n{line}\n" for line in lines(*known).splitlines()))
    write(tmp_path / "log/ubi_queries.ndjson", f"{action}\n\n{lines(search('cheap shoes'))}")
    got = logs_of(tmp_path / "log", tmp_path / "run")
    assert [(row["query"], row["clicked"]) for row in got.rows] == [("cheap shoes", False), ("cheap shoes", True)]
    assert got.reasons == [("empty doc_id", 6)]
    assert got.manifest.funnel[0].rows_in == 3


def test_exported_hits_are_read_by_their_source(tmp_path: Path) -> None:
    hits = [{"_index": "ubi_events", "_id": str(n), "_source": event(doc=f"d{n}", user_query=None)} for n in range(3)]
    write(tmp_path / "log/ubi_events.jsonl", lines(*hits))
    write(tmp_path / "log/ubi_queries.jsonl", lines({"_index": "ubi_queries", "_source": search("cheap shoes")}))
    got = logs_of(tmp_path / "log", tmp_path / "run")
    assert [(row["query"], row["doc_id"]) for row in got.rows] == [("cheap shoes", f"d{n}") for n in range(3)]


def test_other_actions_are_not_unreadable(tmp_path: Path) -> None:
    write(tmp_path / "log/ubi_events.jsonl", lines(event(), *[event("add_to_cart")] * 20))
    got = logs_of(tmp_path / "log", tmp_path / "run", ingest={"max_reject_share": 0})
    assert (len(got.rows), len(got.rejects)) == (1, 20)
    write(tmp_path / "log/ubi_events.jsonl", lines(event(), event("click", None), *[event("add_to_cart")] * 20))
    with pytest.raises(TooManyRejects, match=r"^1 of 2 rows"):
        logs_of(tmp_path / "log", tmp_path / "other", ingest={"max_reject_share": 0.4})


def test_many_other_actions_are_told_together(tmp_path: Path) -> None:
    write(tmp_path / "log/ubi_events.jsonl", lines(event(), *[event(f"a{number}") for number in range(300)]))
    got = logs_of(tmp_path / "log", tmp_path / "run")
    dropped = got.manifest.funnel[0].dropped
    assert (len(dropped), dropped["action is neither impression nor click"]) == (101, 200)


def test_a_query_is_found_wherever_it_is_told(tmp_path: Path) -> None:
    known = [event(user_query=None, query_id=f"q{number}") for number in range(1, 5)]
    write(tmp_path / "log/2026-03-02/a/ubi_events.jsonl", lines(*known, event(user_query=" ", query_id="q9")))
    write(tmp_path / "log/2026-03-02/z/ubi_queries.jsonl", lines(search("same day")))
    write(tmp_path / "log/2026-03-01/ubi_queries.jsonl", lines(search("day before", "q2"), search("lost", "q1")))
    write(tmp_path / "log/2026-02-28/ubi_queries.jsonl", lines(search("two before", "q3")))
    write(tmp_path / "log/2026-02-27/ubi_queries.jsonl", lines(search("too old", "q4")))
    got = logs_of(tmp_path / "log", tmp_path / "run", dates=[date(2026, 3, 2)])
    assert {row["search_id"]: row["query"] for row in got.rows} == {
        "q1": "same day", "q2": "day before", "q3": "two before",
    }  # fmt: skip
    assert got.reasons == [("its query_id has no query", 4), ("its query_id has no query", 5)]
    assert len(logs_of(tmp_path / "log", tmp_path / "other", max_late_days=3).rows) == 4


def test_a_query_of_another_tenant_is_not_lent(tmp_path: Path) -> None:
    rows = [event(user_query=None, application=name) for name in ("shop", "forum")]
    write(tmp_path / "log/ubi_events.jsonl", lines(*rows))
    write(tmp_path / "log/ubi_queries.jsonl", lines(search(application="shop")))
    got = logs_of(tmp_path / "log", tmp_path / "run", columns={"tenant": "application"})
    assert (got.column("tenant"), got.reasons) == (["shop"], [("its query_id has no query", 2)])


def test_lists_stand_in_for_impressions_that_are_not_logged(tmp_path: Path) -> None:
    write(tmp_path / "log/2026-03-02/ubi_events.jsonl", lines(event("click", "b", 0, query_id="q2"), event(place=0)))
    searches = [
        search("seen", "q1", query_response_hit_ids=["x", "y"]),
        search("clicked", "q2", query_response_hit_ids=["a", "b", "c"], session_id="s"),
        search("nothing", "q3", query_response_hit_ids=[]),
        search("no list", "q4"),
        search("numbers", "q5", query_response_hit_ids=[7, None]),
        search(None, "q6", query_response_hit_ids=["a"]),
    ]
    write(tmp_path / "log/2026-03-02/ubi_queries.jsonl", lines(*searches, '{"user_query": "no id"}'))
    got = logs_of(tmp_path / "log", tmp_path / "run")
    rows = [(row["search_id"], row["doc_id"], row["position"], row["clicked"]) for row in got.rows]
    assert sorted(rows) == [
        ("q1", "d1", 1, False),
        ("q2", "a", 1, False),
        ("q2", "b", 1, True),
        ("q2", "b", 2, False),
        ("q2", "c", 3, False),
        ("q5", "7", 1, False),
    ]
    assert {row["query"] for row in got.rows if row["search_id"] == "q2"} == {"Laptop Bag", "clicked"}
    assert sorted(got.reasons) == [("empty doc_id", 5), ("empty query", 6), ("missing query_id", 7)]


def test_a_list_may_have_gaps(tmp_path: Path) -> None:
    lists = [["a", None, "c"], [], None, ["", "e"]]
    searches = [search("x", f"q{number}", query_response_hit_ids=ids) for number, ids in enumerate(lists)]
    write(tmp_path / "log/ubi_events.jsonl", lines(event("click", query_id="q9")))
    write(tmp_path / "log/ubi_queries.jsonl", lines(*searches))
    got = logs_of(tmp_path / "log", tmp_path / "run")
    shown = [(row["search_id"], row["doc_id"], row["position"]) for row in got.rows if not row["clicked"]]
    assert sorted(shown) == [("q0", "a", 1), ("q0", "c", 3), ("q3", "e", 2)]
    assert got.reasons == [("empty doc_id", 1), ("empty doc_id", 4)]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_other_formats(tmp_path: Path, form: str) -> None:
    (tmp_path / "log").mkdir()
    if form == "parquet":
        for name, rows in (("events", [event(user_query=None, place=None)]), ("queries", [search(query_id="q1")])):
            pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"log/ubi_{name}.parquet")
        listed = pa.Table.from_pylist([search("listed", "q2", query_response_hit_ids=["x"])])
        pq.write_table(listed, tmp_path / "log/ubi_queries_2.parquet")
    else:
        head = "action_name,query_id,timestamp,user_query,event_attributes.object.object_id\n"
        write(tmp_path / "log/ubi_events.csv", head + "click,q1,2026-03-02T10:00:00Z,,d1\n")
        write(tmp_path / "log/ubi_queries.csv", "query_id,user_query\nq1,Laptop Bag\n")
    got = logs_of(tmp_path / "log", tmp_path / "run")
    assert ("q1", "Laptop Bag", "d1", None) in {
        (row["search_id"], row["query"], row["doc_id"], row["position"]) for row in got.rows
    }
    assert (len(got.rows), got.rejects) == (2 if form == "parquet" else 1, [])


def test_a_neighbour_that_is_gone_changes_nothing_and_one_that_changes_does(tmp_path: Path) -> None:
    write(tmp_path / "log/2026-03-02/ubi_events.jsonl", lines(event(user_query=None), event(query_id="q2")))
    before = write(tmp_path / "log/2026-03-01/ubi_queries.jsonl", lines(search("day before")))
    first = logs_of(tmp_path / "log", tmp_path / "run")
    assert sorted(first.column("query")) == ["Laptop Bag", "day before"]
    before.unlink()
    gone = logs_of(tmp_path / "log", tmp_path / "run", nightly=True)
    assert (gone.files, gone.manifest.facts) == (first.files, first.manifest.facts)
    write(before, lines(search("another")))
    again = logs_of(tmp_path / "log", tmp_path / "run", nightly=True)
    assert sorted(again.column("query")) == ["Laptop Bag", "another"]


def test_days_one_at_a_time_give_the_bytes_of_all_at_once(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        time = f"2026-03-{day:02d}T10:00:00Z"
        folder = tmp_path / f"log/2026-03-{day:02d}"
        events = [event(user_query=None, query_id=f"q{day - back}", timestamp=time, place=0) for back in (0, 1)]
        write(folder / "ubi_events.jsonl", lines(*events))
        write(folder / "ubi_queries.jsonl", lines(search(f"of day {day}", f"q{day}", day)))
    whole = logs_of(tmp_path / "log", tmp_path / "whole")
    for day in (1, 2, 3):
        last = logs_of(tmp_path / "log", tmp_path / "run", dates=[date(2026, 3, day)], nightly=True)
    assert (last.files, last.manifest.facts) == (whole.files, whole.manifest.facts)
    assert len(whole.rows) == 5


@pytest.mark.skipif(not SAMPLE.is_dir(), reason="the collection is not here")
def test_a_real_sample(tmp_path: Path) -> None:
    got = logs_of(SAMPLE, tmp_path / "run", columns={"tenant": "application"})
    assert len(set(got.column("tenant"))) > 1
    assert min(got.column("position")) == 1
    kept = logs_of(SAMPLE, tmp_path / "other")
    # 1,999 impressions and 287 clicks, 87 of them of queries that nothing tells; 404 listed where no impression is.
    assert len(kept.rows) == 1999 + 287 - 87 + 404
    assert kept.manifest.funnel[0].dropped["its query_id has no query"] == 87 + 11, "and of 11 item_click"
