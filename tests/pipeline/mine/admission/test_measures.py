"""The scales of what is watched, and the share of a day that earlier ones knew."""

import random
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.mine.admission.measures import MEASURES, divergence
from helpers.days import judged, ordinary
from helpers.runs import read
from helpers.small_log import FIRST, Search


def test_counts_like_before_are_at_no_distance_and_others_are() -> None:
    expected = np.array([[50.0, 30, 20], [50, 30, 20], [50, 30, 20], [50, 30, 20]])
    observed = np.array([[500.0, 300, 200], [1000, 0, 0], [50, 30, 20], [0, 0, 0]])
    found = divergence(observed, expected)
    assert found[0] == 0
    assert found[1] == pytest.approx(np.sqrt(2 * np.log(2)) - np.sqrt(2 / 1000))
    assert (found[2], found[3]) == (0, 0)


def test_divergence_without_earlier_days_is_finite() -> None:
    assert np.isfinite(divergence(np.array([[5.0, 3]]), np.zeros((1, 2)))).all()


def test_what_is_known_is_the_share_of_what_earlier_days_held(run: Run) -> None:
    day = [Search("default", f"s{n}", n, f"q{n % 4}", ("d1", "d2"), frozenset({1})) for n in range(8)]
    news = [replace(one, query="new") if n < 2 else one for n, one in enumerate(day)]
    other = [replace(one, shown=("d9", "d2")) if n > 5 else one for n, one in enumerate(news)]
    judged(run, {FIRST: day, FIRST + timedelta(1): other})
    rows = {str(row["measure"]): row for row in read(run, "day_measures") if row["date"] == FIRST + timedelta(1)}
    known = {name: round(np.sin(float(str(row["value"]))) ** 2, 4) for name, row in rows.items() if "known" in name}
    assert known == {
        "known_queries": 0.75,
        "known_documents": 0.875,
        "known_shown": round(10 / 12, 4),
        "known_clicked": round(4 / 6, 4),
    }
    first = {str(row["measure"]) for row in read(run, "day_measures") if row["date"] == FIRST}
    assert not any("known" in name for name in first)
    assert {one.name for one in MEASURES} == {*first, *rows}


def test_clicks_by_place_are_held_against_what_earlier_days_had_for_each_place(run: Run) -> None:
    first = [Search("default", f"s{n}", n, "q", ("d1", "d2"), frozenset({1})) for n in range(9)]
    second = [replace(one, shown=("d1", "d2", "d3"), clicked=frozenset({n % 2 + 1})) for n, one in enumerate(first)]
    judged(run, {FIRST: first, FIRST + timedelta(1): second})
    (value,) = [
        row["value"]
        for row in read(run, "day_measures")
        if (row["date"], row["measure"]) == (FIRST + timedelta(1), "clicks_by_place")
    ]
    places = np.array([[9 * 9.5 / 10, 9 * 0.5 / 10, 9 * 0.5 / 1]])  # shown today × smoothed share of clicks before
    assert value == pytest.approx(float(divergence(np.array([[5.0, 4, 0]]), places)[0]), abs=1e-6)


def test_searches_by_hour_are_held_against_those_of_earlier_days(run: Run) -> None:
    first = [Search("default", f"s{n}", 60 * (9 + n % 2), "q", ("d1", "d2"), frozenset({1})) for n in range(9)]
    second = [replace(one, minute=60 * 9) for one in first]
    judged(run, {FIRST: first, FIRST + timedelta(1): second})
    (value,) = [
        row["value"]
        for row in read(run, "day_measures")
        if (row["date"], row["measure"]) == (FIRST + timedelta(1), "searches_by_hour")
    ]
    before, after = np.full((1, 24), 0.5), np.zeros((1, 24))
    before[0, 9:11] += [5, 4]
    after[0, 9] = 9
    assert value == pytest.approx(float(divergence(after, before)[0]), abs=1e-6)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda one: one.name)
def test_a_measure_says_itself_in_plain_words(measure: object) -> None:
    assert measure.plain(1.0) in {"2.72", "71%", "1.00"}  # type: ignore[attr-defined]


def office_day(number: int, later: int) -> list[Search]:
    """A day with searches from eight to six, so many hours later than at first."""
    chance = random.Random(number)
    hours = [int(min(18, max(8, chance.gauss(12.5, 2.6)))) + later for _ in ordinary(number)]
    return [
        replace(search, minute=60 * hour + chance.randrange(60))
        for search, hour in zip(ordinary(number), hours, strict=True)
    ]


@pytest.mark.parametrize(("later", "state"), [(1, "admitted"), (-1, "admitted"), (-6, "held")])
def test_a_change_of_the_clock_holds_no_day(run: Run, later: int, state: str) -> None:
    """Hours are in UTC: from the change on, everybody searches an hour earlier or later."""
    log = {FIRST + timedelta(number): office_day(number, later if number > 8 else 0) for number in range(12)}
    states = judged(run, log)
    changed = [states[str(FIRST + timedelta(number)), "default"] for number in range(9, 12)]
    assert changed[0] == state
    assert state == "held" or set(states.values()) == {"admitted"}
