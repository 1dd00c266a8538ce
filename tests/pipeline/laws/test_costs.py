"""What labels took: calls by depth, tokens at prices, minutes without pauses, and what the next ranks would take."""

from pathlib import Path

import pytest

from darklode.pipeline.laws.costs import JudgedRun, ModelCost, measured_costs
from helpers.planned import built, reviewed

QUERIES, CALLS, POSITIVES = 12, 6 * 4 + 6 * 8, 6 * 2 + 6 * 4


def test_calls_positives_and_money_are_those_of_the_verdicts(tmp_path: Path) -> None:
    took = measured_costs([JudgedRun(built(tmp_path / "run"), (2.0, 10.0))], [], 0)
    rows = {row["item"]: row for row in took.costs}
    assert rows["calls for a query"]["value"] == CALLS / QUERIES
    assert rows["calls for a positive"]["value"] == CALLS / POSITIVES == rows["calls for a positive"]["low"]
    assert took.per_query == pytest.approx(CALLS * (100 * 2 + 10 * 10) / 1e6 / QUERIES)
    assert took.per_call == pytest.approx(3e-4)
    assert took.minutes is None
    assert measured_costs([JudgedRun(built(tmp_path / "other"), (0.0, 0.0))], [], 0).per_query is None


def test_depths_tell_where_positives_lie_and_what_the_next_ranks_take(tmp_path: Path) -> None:
    first, second, last, below = measured_costs([JudgedRun(built(tmp_path / "run"), (0.0, 0.0))], [], 0).depths
    assert [(row["from_rank"], row["to_rank"]) for row in (first, second, last, below)] == [
        (1, 1),
        (2, 2),
        (3, 4),
        (5, 8),
    ]
    assert [row["judged"] for row in (first, second, last)] == [True] * 3
    assert (first["calls"], first["positives"], first["calls_per_positive"]) == (18, 18, 1)
    assert (last["calls"], last["positives"], last["calls_per_positive"], last["high"]) == (36, 0, None, None)
    assert (below["judged"], below["calls"], below["positives"]) == (False, 6 * 4 + 6 * 8, None)


def test_minutes_are_those_between_a_reviewers_answers_without_pauses(tmp_path: Path) -> None:
    run = built(tmp_path / "run")
    reviewed(run)
    took = measured_costs([JudgedRun(run, (0.0, 0.0))], [], 0)
    rows = {row["item"]: row for row in took.costs}
    assert rows["a person's minutes for a pair"]["value"] == 0.5
    assert took.minutes == 0.5 * CALLS / QUERIES


def test_a_models_hours_are_training_and_encoding() -> None:
    model = ModelCost("a", 1e6, 7200, 2.0, 1800.0)
    assert model.hours == 1.5
    assert [row["value"] for row in measured_costs([], [model], 0).costs] == [2.0, 1.5]
