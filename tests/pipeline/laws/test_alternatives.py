"""Other choices: sources and models against one another seed by seed, and deeper judging by the ranks before."""

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.laws.alternatives import compare_models, compare_sources, judge_deeper
from darklode.pipeline.laws.costs import MeasuredCosts, ModelCost
from darklode.pipeline.laws.label_plan import PlanRequest
from darklode.schemas.law_tables import LAW_POINTS
from helpers.planned import found_of

SIZES = 2 ** np.arange(5, 11)


def points(shift: float, name: str, **about: float | str) -> list[dict[str, object]]:
    draws = np.random.default_rng(0)
    rows = []
    for size in SIZES:
        for seed in range(3):
            loss = ((60 / size) ** 0.4 + 0.3) / 4 + shift + draws.normal(0, 0.0005) + 0.01 * seed * (name == "")
            rows.append({"measure": "nDCG@10", "source": "labels", "size": int(size), "seed": seed} | about)
            rows[-1]["value"] = 1 - loss
    return rows


def table(*parts: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist([row for part in parts for row in part], schema=LAW_POINTS.schema)


@pytest.mark.slow
def test_another_source_is_held_against_the_runs_own_labels() -> None:
    rows = table(points(0.0, "a"), points(0.02, "b", source="bm25"))
    laws = found_of(rows)
    (row,) = compare_sources(rows, laws)
    assert (row["source"], row["option"], row["amount"], row["money"]) == ("bm25", "another source", 1024, 0.0)
    assert row["gain"] == pytest.approx(-0.02, abs=1e-3)
    assert row["gain_low"] <= row["gain"] <= row["gain_high"] < 0
    loss = ((60 / 1024) ** 0.4 + 0.3) / 4 + 0.02
    worth = 60 / ((loss * 4 - 0.3) ** 2.5)
    told = float(row["advice"].split("as much as ")[1].split(" labels")[0].replace(",", ""))
    assert told == pytest.approx(worth, rel=0.15)


@pytest.mark.slow
def test_a_larger_model_costs_what_training_and_encoding_take_more() -> None:
    rows = table(points(0.02, "a", parameters=1e6), points(0.0, "a", parameters=4e6))
    laws = found_of(rows)
    took = MeasuredCosts(models=(ModelCost("a", 1e6, 3600, 1.0, 0.0), ModelCost("b", 4e6, 3600, 0.25, 0.0)))
    (row,) = compare_models(rows, laws, took, PlanRequest(per_gpu_hour=2.0))
    assert (row["option"], row["amount"]) == ("larger model", 3e6)
    assert row["gain"] == pytest.approx(0.02, abs=1e-3)
    assert row["money"] == pytest.approx(2 * (4 - 1))
    (row,) = compare_models(rows, laws, took, PlanRequest())
    assert row["money"] is None


def test_deeper_judging_finds_at_most_what_the_ranks_before_gave() -> None:
    seen = {"from_rank": 1, "to_rank": 10, "judged": True, "calls": 100, "positives": 20}
    last = {"from_rank": 11, "to_rank": 20, "judged": True, "calls": 100, "positives": 5}
    below = {"from_rank": 21, "to_rank": 40, "judged": False, "calls": 200, "positives": None}
    each = {"calls_per_positive": 20.0, "low": 10.0, "high": None}
    took = MeasuredCosts(depths=[seen | each, last | each, below | each], per_call=0.01)
    (row,) = judge_deeper(took)
    assert (row["amount"], row["money"]) == (200, 2.0)
    assert "finds at most 10 positives" in row["advice"]
    assert "20.0 calls (10.0 to ?)" in row["advice"]
    assert "a positive takes 8.0 calls at a new query" in row["advice"]
    assert judge_deeper(MeasuredCosts()) == []


@pytest.mark.slow
def test_without_common_seeds_the_gain_is_the_difference_of_the_means() -> None:
    rows = table(points(0.0, "a"), [row | {"seed": row["seed"] + 5} for row in points(0.02, "b", source="bm25")])
    (row,) = compare_sources(rows, found_of(rows))
    assert row["gain"] == pytest.approx(-0.02, abs=1e-3)
    assert (row["gain_low"], row["gain_high"]) == (None, None)
