"""What a day of the log is summed up to: whose searches count, what is an exposure, what a click."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Manifest, Run, Stage
from darklode.pipeline.mine.evidence import EVIDENCE, LOG_QUERIES_STAGE, evidence, log_queries
from darklode.pipeline.mine.session_split import SessionSplit
from darklode.schemas.mining import ClickSettings, LogSettings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put, read
from helpers.small_log import FIRST, Search, impressions, query_id

Log = dict[int, list[Search]]


def give(run: Run, log: Log, more: Sequence[dict[str, Any]] = ()) -> None:
    """Days by number; `more` are rows of the first day, as changes to its first row."""

    def write(_tables: Any, output: Any) -> None:
        for number, searches in log.items():
            rows = impressions(FIRST + timedelta(number), searches)
            if number == 0 and more:
                first = rows.slice(0, 1).to_pylist()[0]
                rows = pa.concat_tables([rows, pa.Table.from_pylist([first | one for one in more], rows.schema)])
            output.write("impressions", rows)

    execute(run, Stage("given_log", 1, (), ("impressions",)), write)


def sum_up(run: Run, click: ClickSettings | None = None, logs: LogSettings | None = None) -> Manifest:
    if "click_model" not in run.parts():
        put(run, "click_model", TABLES["click_model"].empty())
    chosen = click or ClickSettings(), logs or LogSettings()
    return execute(run, EVIDENCE, lambda tables, output: evidence(tables, output, *chosen))


def counts(run: Run) -> dict[str, tuple[object, ...]]:
    rows = read(run, "click_evidence")
    return {str(row["doc_id"]): (row["exposures"], row["clicks"], row["satisfied"]) for row in rows}


ONE = Search("default", "s1", 1, "reset password", ("a", "b", "c", "d"), frozenset({3}))


def test_searches_are_counted_not_events(run: Run) -> None:
    again = {"event_id": "again"}
    click = {"event_id": "click", "doc_id": "a", "clicked": True, "position": None}
    late = {"event_id": "other", "doc_id": "z", "clicked": True, "position": None}
    give(run, {0: [ONE]}, [again, again, click, late])
    manifest = sum_up(run)
    assert counts(run) == {"a": (1, 1, 1), "b": (1, 0, 0), "c": (1, 1, 1), "d": (1, 0, 0), "z": (1, 1, 1)}
    step = manifest.funnel[0]
    assert (step.rows_in, step.rows_out) == (8, 5)
    assert step.dropped == {"repeated, or a click joined to its impression": 3}


def test_only_what_stands_above_the_lowest_click_was_skipped(run: Run) -> None:
    nobody = Search("default", "s2", 2, "reset password", ("e", "f"))
    give(run, {0: [ONE, nobody]})
    sum_up(run, ClickSettings(negatives="skipped"))
    exposures = {doc: found[0] for doc, found in counts(run).items()}
    assert exposures == {"a": 1, "b": 1, "c": 1, "d": 0, "e": 0, "f": 0}


@pytest.mark.parametrize(("dwell", "satisfied"), [(None, 1), (4.9, 0), (5.0, 1)])
def test_a_short_stay_is_a_click_that_did_not_satisfy(run: Run, dwell: float | None, satisfied: int) -> None:
    give(run, {0: [ONE]}, [{"event_id": "x", "doc_id": "q", "clicked": True, "dwell_seconds": dwell}])
    sum_up(run, ClickSettings(min_dwell_seconds=5))
    assert counts(run)["q"] == (1, 1, satisfied)


def bots(per_minute: int, all_clicked: int) -> list[Search]:
    hasty = [Search("default", "hasty", 7, f"q{number}", ("a", "b")) for number in range(per_minute)]
    greedy = [
        Search("default", "greedy", 9 + number, f"q{number}", ("a", "b"), frozenset({1, 2}))
        for number in range(all_clicked)
    ]
    return [*hasty, *greedy]


def test_bots_are_left_out_and_said(run: Run) -> None:
    other_tenant = [Search("tern", "hasty", 7, "q0", ("a",))]
    give(run, {0: [*bots(31, 25), ONE, *other_tenant], 1: [Search("default", "hasty", 3, "q1", ("a",))]})
    manifest = sum_up(run)
    tenants = {(row["tenant"], str(row["date"]), row["doc_id"]) for row in read(run, "click_evidence")}
    first, second = str(FIRST), str(FIRST + timedelta(1))
    assert tenants == {*(("default", first, doc) for doc in "abcd"), ("tern", first, "a"), ("default", second, "a")}
    rejects = {(row["id"], row["reason"], row["payload"]) for row in read(run, "rejects")}
    assert rejects == {
        ("hasty", "bot: too many searches a minute", f"62 impressions on {first}"),
        ("greedy", "bot: clicks on everything", f"50 impressions on {first}"),
    }
    assert manifest.funnel[0].dropped == {"bot: too many searches a minute": 62, "bot: clicks on everything": 50}


@pytest.mark.parametrize("searches", [bots(30, 0), bots(0, 24)])
def test_a_busy_person_is_no_bot(run: Run, searches: list[Search]) -> None:
    give(run, {0: searches})
    assert not sum_up(run).funnel[0].dropped


def test_bots_can_be_kept(run: Run) -> None:
    give(run, {0: bots(31, 25)})
    assert not sum_up(run, logs=LogSettings(bot_queries_per_minute=0, bot_click_share=0)).funnel[0].dropped


def test_a_session_without_a_name_is_no_bot(run: Run) -> None:
    rows = [{"event_id": f"e{n}", "search_id": f"n{n}", "session_id": None, "query_id": f"{n}"} for n in range(99)]
    give(run, {0: [ONE]}, rows)
    assert not sum_up(run).funnel[0].dropped


def test_the_funnel_counts_days_that_were_not_read_again(run: Run) -> None:
    log = {0: [*bots(31, 0), ONE], 1: [ONE]}
    give(run, {0: log[0]})
    sum_up(run)
    give(run, log)
    assert sum_up(run).funnel[0].rows_in == 62 + 4 + 4


def test_it_is_noted_whether_a_day_only_gained(run: Run) -> None:
    give(run, {0: [ONE]})
    assert sum_up(run).facts["contains"] == {str(FIRST): []}
    give(run, {0: [ONE, Search("default", "s9", 5, "refund", ("a",))]})
    assert len(sum_up(run).facts["contains"][str(FIRST)]) == 1
    give(run, {0: [ONE, Search("default", "s9", 5, "refund", ("a", "b"))]})
    assert len(sum_up(run).facts["contains"][str(FIRST)]) == 2
    give(run, {0: [ONE]})
    assert sum_up(run).facts["contains"] == {str(FIRST): []}


def spelled(*texts: str, session: str = "s") -> list[Search]:
    """A search of each text."""
    return [Search("default", session, minute, text, ("a", "b")) for minute, text in enumerate(texts)]


def test_spellings_are_counted_by_searches_without_bots(run: Run) -> None:
    bot = [Search("default", "hasty", 7, "RESET", ("a",)) for _ in range(31)]
    give(run, {0: [*spelled("reset", "Reset?", "reset"), *bot], 1: spelled("reset")})
    sum_up(run)
    first, second = FIRST, FIRST + timedelta(1)
    counted = [(row["date"], row["query_id"], row["query"], row["searches"]) for row in read(run, "query_spellings")]
    name = query_id("reset")
    assert counted == [(first, name, "Reset?", 1), (first, name, "reset", 2), (second, name, "reset", 1)]


def test_a_query_is_told_as_most_spelled_it_on_its_first_day(run: Run) -> None:
    later = spelled(*["RESET?"] * 9, "Refund!", "refund")
    give(run, {1: spelled("reset?", "Reset", "Reset"), 2: later})
    sum_up(run)
    step = execute(run, LOG_QUERIES_STAGE, log_queries).funnel[0]
    told = {row["text"]: (row["normal_form"], row["date"]) for row in read(run, "log_queries")}
    assert told == {"Reset": ("reset", FIRST + timedelta(1)), "Refund!": ("refund", FIRST + timedelta(2))}
    assert (step.rows_in, step.rows_out) == (5, 2)
    give(run, {0: spelled("reset!"), 1: spelled("reset?", "Reset", "Reset"), 2: later})
    sum_up(run)
    execute(run, LOG_QUERIES_STAGE, log_queries)
    assert {row["text"]: row["date"] for row in read(run, "log_queries")}["reset!"] == FIRST


def test_depth_is_the_highest_position_relative_to_the_list(run: Run) -> None:
    lower = Search("default", "s2", 2, "reset password", ("x", "d"))
    give(run, {0: [ONE, lower]}, [{"event_id": "e", "doc_id": "z", "position": None}])
    sum_up(run)
    depths = {row["doc_id"]: row["depth"] for row in read(run, "click_evidence")}
    assert depths == {"a": 0.25, "b": 0.5, "c": 0.75, "d": 1.0, "x": 0.5, "z": None}


def test_reformulations_are_consecutive_searches_of_a_session(run: Run) -> None:
    def search(session: str, minute: int, query: str, clicked: str = "") -> Search:
        return Search("default", session, minute, query, ("a", "b"), frozenset({1} if clicked else ()))

    searches = [
        *(search("s1", 0, "reset"), search("s1", 1, "reset password", "a"), search("s1", 31, "invoice", "a")),
        *(search("s2", 5, "reset"), search("s2", 6, "reset password"), search("s2", 7, "reset password")),
        *(search("s3", 0, "refund"), search("s3", 31, "webhook")),
    ]
    give(run, {0: searches})
    sum_up(run)
    names = {query_id(name): name for name in ("reset", "reset password", "invoice", "refund", "webhook")}
    rows = read(run, "reformulations")
    assert {(names[str(row["query_id"])], names[str(row["next_query_id"])]): row["searches"] for row in rows} == {
        ("reset", "reset password"): 2,
        ("reset password", "invoice"): 1,
    }
    assert {names[str(row["query_id"])] for row in rows if row["shares_click"]} == {"reset password"}


def test_counts_and_queries_know_the_split_of_their_sessions(run: Run) -> None:
    sessions = SessionSplit("session", 0.3, 13)
    searches = [Search("default", f"s{number}", number, "reset", ("a", "b")) for number in range(40)]
    give(run, {0: searches})
    put(run, "click_model", TABLES["click_model"].empty())
    execute(run, EVIDENCE, lambda t, o: evidence(t, o, ClickSettings(), LogSettings(), sessions=sessions))
    execute(run, LOG_QUERIES_STAGE, log_queries)
    rows = read(run, "click_evidence")
    exposures = {row["session_split"]: row["exposures"] for row in rows if row["doc_id"] == "a"}
    assert set(exposures) == {"train", "validation"}
    assert sum(exposures.values()) == 40  # type: ignore[arg-type]
    (of_day,), (query,) = read(run, "query_spellings"), read(run, "log_queries")
    assert of_day["session_split"] == query["session_split"] in {"train", "validation"}
