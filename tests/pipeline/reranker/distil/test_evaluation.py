"""When a distilled judge must not replace its teacher, and how the comparison reads."""

from typing import Any

import pytest

from darklode.pipeline.base.artifacts import Manifest
from darklode.pipeline.base.errors import NoLift
from darklode.pipeline.reranker.distil.evaluation import (
    format_comparison,
    pairs_per_second,
    refusal,
    require_agreement,
)


def figure(value: float | None, low: float | None = None, high: float | None = None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


def facts(kappa: float | None = 0.7, difference: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    people = [figure(0.4, 0.3, 0.5), figure(0.38, 0.28, 0.48)] if difference else []
    comparison = {"teacher_kappa": figure(kappa, 0.6, 0.8), "agreement": 0.9, "people_kappas": people}
    comparison |= {"difference": difference, "labels": 200 if difference else 0}
    given = {"calibrated on": "the teacher's labels", "comparison": comparison, "queries": 30}
    return given | {"pairs per second": 80.0, "teacher's pairs per second": None} | more


@pytest.mark.parametrize(
    ("kappa", "difference", "least", "reason"),
    [
        (0.7, None, None, None),
        (0.59, None, None, "its kappa with the teacher is 0.59, below 0.6"),
        (None, None, None, "its kappa with the teacher is unknown, below 0.6"),
        (0.2, figure(-0.05, -0.1, 0.0), None, None),
        (0.9, figure(-0.1, -0.2, -0.03), None, r"it agrees less with people than its teacher: kappa -0.10 \(-0.20 to"),
        (0.9, figure(-0.1, -0.2, -0.02), None, None),
        (0.5, figure(0.0, -0.1, 0.1), 0.6, "its kappa with the teacher is 0.50, below 0.6"),
        (0.5, figure(None), None, "its kappa with the teacher is 0.50, below 0.6"),
    ],
)
def test_refusals(
    kappa: float | None, difference: dict[str, Any] | None, least: float | None, reason: str | None
) -> None:
    given = facts(kappa, difference)
    if reason is None:
        assert refusal(given, least) is None
        assert require_agreement(given, least) == format_comparison(given)
    else:
        with pytest.raises(NoLift, match=f"must not replace its teacher: {reason}"):
            require_agreement(given, least)


def test_scores_that_do_not_rise_with_the_labels_are_refused() -> None:
    assert refusal(facts(**{"calibrated on": None}), -1.0) == "its scores do not rise with the labels"


def test_the_comparison_names_speeds_and_people_where_known() -> None:
    text = format_comparison(facts(0.7, figure(-0.02, -0.08, 0.04), **{"teacher's pairs per second": 4.0}))
    assert "kappa 0.70 (0.60 to 0.80)" in text
    assert "teacher 0.40 (0.30 to 0.50), distilled 0.38 (0.28 to 0.48), difference -0.02 (-0.08 to +0.04)" in text
    assert "80 pairs a second on one core, 20 times its teacher's." in text
    text = format_comparison(facts())
    assert "people" not in text
    assert "the teacher's speed is unknown" in text


@pytest.mark.parametrize(
    ("facts", "seconds", "rate"),
    [
        ({"asked": 100, "hits": 0}, 20.0, 5.0),
        ({"asked": 100, "hits": 1}, 20.0, None),
        ({}, 20.0, None),
        ({}, 0.0, None),
    ],
)
def test_the_teachers_speed_is_known_only_if_it_judged_all_pairs(
    facts: dict[str, int], seconds: float, rate: float | None
) -> None:
    assert pairs_per_second(Manifest("judge", "f", {}, {}, {}, [], seconds, facts)) == rate


def test_a_run_without_the_stage_has_no_speed() -> None:
    assert pairs_per_second(None) is None
