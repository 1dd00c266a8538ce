"""Days that are admitted and held: by admitted days before them alone, in whatever order they came."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.mine.admission.decisions import Decision
from darklode.pipeline.mine.admission.stage import ADMIT_DAYS
from darklode.schemas.mining import AdmissionSettings
from helpers.days import days, garbage, judged, ordinary
from helpers.runs import read
from helpers.small_log import FIRST, Log, Search

BAD = 9
DAY = str(FIRST + timedelta(BAD))


def with_garbage(count: int = 12) -> Log:
    return days(count) | {FIRST + timedelta(BAD): garbage(BAD)}


def decision(verdict: str, tenant: str | None = None) -> dict[str, list[Decision]]:
    return {DAY: [Decision(DAY, tenant, verdict, "a sale", "2026-03-12T02:10:00+00:00", "mark")]}  # type: ignore[arg-type]


def held(states: dict[tuple[str, str], str]) -> list[str]:
    return [day for (day, _), state in states.items() if state == "held"]


def test_ordinary_days_are_admitted_and_garbage_is_held_with_its_reasons(run: Run) -> None:
    assert held(judged(run, with_garbage())) == [DAY]
    (row,) = [row for row in read(run, "log_days") if row["state"] == "held"]
    assert row["reasons"][0] == "3 clicks a search (0.714 expected, 0.659 the day before)"  # type: ignore[index]
    assert row["p_value"] < 1e-6  # type: ignore[operator]
    (step,) = run.manifests()["admit_days"].funnel
    assert step.dropped == {"the day is held": 2400}


@pytest.mark.slow
def test_a_held_day_teaches_the_volume_alone(run: Run, tmp_path: Path) -> None:
    judged(run, with_garbage())
    other = Run(str(tmp_path / "other"))
    log = with_garbage()
    judged(other, {day: searches for day, searches in log.items() if str(day) != DAY})
    rest = [
        [row for row in read(one, "day_measures") if str(row["date"]) != DAY and row["measure"] != "searches"]
        for one in (run, other)
    ]
    assert rest[0] == rest[1]
    assert judged(run, with_garbage(), decision("accepted"))[DAY, "default"] == "accepted"
    after = [row for row in read(run, "day_measures") if str(row["date"]) != DAY and row["measure"] != "searches"]
    assert after != rest[1]


@pytest.mark.slow
def test_days_in_any_order_end_like_one_run(run: Run, tmp_path: Path) -> None:
    log = with_garbage(16)
    for late in ({3, 4}, {4}, {BAD}, set()):
        judged(run, {day: rows for day, rows in log.items() if (day - FIRST).days not in late})
    whole = Run(str(tmp_path / "whole"))
    assert judged(run, log) == judged(whole, log)
    assert read(run, "day_measures") == read(whole, "day_measures")


@pytest.mark.slow
def test_a_night_judges_its_own_day_alone(run: Run) -> None:
    judged(run, days(10))
    before = set(run.manifests()["admit_days"].units)
    judged(run, days(11))
    assert len(set(run.manifests()["admit_days"].units) - before) == 1


@pytest.mark.slow
@pytest.mark.parametrize("verdict", ["accepted", "discarded"])
def test_the_last_word_on_a_day_is_peoples(run: Run, verdict: str) -> None:
    assert judged(run, with_garbage(), decision(verdict))[DAY, "default"] == verdict
    (row,) = [row for row in read(run, "log_days") if str(row["date"]) == DAY]
    assert (row["decided_at"], row["note"]) == ("2026-03-12T02:10:00+00:00", "a sale")
    assert row["reasons"]


@pytest.mark.slow
def test_one_tenants_garbage_is_not_anothers(run: Run) -> None:
    log = {day: [*rows, *ordinary((day - FIRST).days, tenant="tern")] for day, rows in days(11).items()}
    log[FIRST + timedelta(BAD)] = [replace(one, tenant="tern") for one in garbage(BAD)] + ordinary(BAD)
    states = judged(run, log)
    assert states[DAY, "tern"] == "held"
    assert states[DAY, "default"] == "admitted"


@pytest.mark.slow
def test_an_empty_file_is_held_and_a_file_that_never_came_is_missing(run: Run) -> None:
    log = days(11) | {FIRST + timedelta(BAD): []}
    assert judged(run, log)[DAY, "default"] == "held"
    assert judged(run, log, unread=[FIRST + timedelta(BAD)])[DAY, "default"] == "missing"
    assert judged(run, log, decision("accepted"))[DAY, "default"] == "accepted"


@pytest.mark.slow
def test_a_rate_of_zero_holds_nothing_back(run: Run) -> None:
    states = judged(run, with_garbage(), settings=AdmissionSettings(false_alarm_rate=0))
    assert set(states.values()) == {"admitted"}


def test_too_few_days_tell_nothing(run: Run) -> None:
    log = days(5) | {FIRST + timedelta(4): garbage(4)}
    assert set(judged(run, log).values()) == {"admitted"}
    assert {row["distance"] for row in read(run, "log_days")} == {None}


def test_a_log_without_days_has_none(run: Run) -> None:
    assert judged(run, {}) == {}
    assert ADMIT_DAYS.writes == ("day_measures", "log_days")


def halved() -> dict[date, list[Search]]:
    """Thirty ordinary days, and six with a third of the searches."""
    low = {FIRST + timedelta(number): ordinary(number, 50) for number in range(30, 36)}
    return days(30) | low


@pytest.mark.slow
def test_a_new_level_is_admitted_once_it_is_confirmed(run: Run) -> None:
    states = judged(run, halved())
    assert held(states) == [str(FIRST + timedelta(number)) for number in (30, 31)]
    (row,) = [row for row in read(run, "log_days") if row["date"] == FIRST + timedelta(32)]
    assert row["reasons"][0].startswith("new level for 3 days: ")  # type: ignore[index]


@pytest.mark.slow
def test_a_new_level_may_be_confirmed_by_two_days(run: Run) -> None:
    states = judged(run, halved(), settings=AdmissionSettings(confirm_days=2))
    assert held(states) == [str(FIRST + timedelta(30))]


@pytest.mark.slow
def test_a_level_that_was_accepted_is_expected_from_then_on(run: Run) -> None:
    first = FIRST + timedelta(30)
    accepted = {str(first): [replace(decision("accepted")[DAY][0], day=str(first))]}
    assert held(judged(run, halved(), accepted)) == []


@pytest.mark.slow
def test_garbage_content_is_no_new_level(run: Run) -> None:
    bad = {FIRST + timedelta(number): garbage(number) for number in range(20, 26)}
    assert held(judged(run, days(20) | bad)) == [str(day) for day in bad]


@pytest.mark.slow
def test_a_day_of_an_unknown_tenant_is_held_until_it_is_accepted(run: Run) -> None:
    log = days(12) | {FIRST + timedelta(BAD): [replace(one, tenant="new") for one in ordinary(BAD)]}
    assert held(judged(run, log)) == [DAY, DAY]
    (row,) = [row for row in read(run, "log_days") if row["tenant"] == "new"]
    assert row["reasons"] == [f"{row['rows']} rows of a tenant with no admitted day"]
    log[FIRST + timedelta(BAD + 1)] += [replace(one, tenant="new") for one in ordinary(BAD + 1)]
    states = judged(run, log, decision("accepted", "new"))
    assert states[DAY, "new"] == "accepted"
    assert states[str(FIRST + timedelta(BAD + 1)), "new"] == "admitted"


@pytest.mark.slow
def test_a_day_of_a_wrong_clock_makes_no_calendar_of_decades(run: Run) -> None:
    states = judged(run, days(2) | {date(1970, 1, 1): ordinary(0)})
    assert states["1970-01-01", "default"] == "admitted"
    assert len(run.manifests()["admit_days"].units) < 70
