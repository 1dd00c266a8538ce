"""Plans: the optimum against brute force, what a target takes, and what to label where no law stands."""

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.laws.costs import MeasuredCosts, ModelCost
from darklode.pipeline.laws.curve_fitting import Fit, fit
from darklode.pipeline.laws.functional_forms import ADDITIVE, JOINT, SIZE, DataScale, FunctionalForm, LawPoints
from darklode.pipeline.laws.label_plan import LawPlan, PlanRequest, loss_at, optimum, plan_laws, size_for_loss
from darklode.pipeline.laws.points import LawKey
from darklode.pipeline.laws.verdict import LawResult
from darklode.schemas.law_tables import LAW_POINTS
from helpers.planned import found_of

SIZES = 2.0 ** np.arange(7, 13)


def planted(size: np.ndarray) -> np.ndarray:
    return np.asarray((600 / size) ** 0.4 + 0.3)


def rows(measure: str, noise: float, sizes: np.ndarray = SIZES) -> pa.Table:
    draws, found = np.random.default_rng(0), []
    for size in sizes:
        for seed in range(3):
            loss = float(planted(size) / 4 * np.exp(draws.normal(0, noise)))
            row = {"measure": measure, "source": "labels", "size": int(size), "seed": seed, "value": 1 - loss}
            found.append(row)
    return pa.Table.from_pylist(found, schema=LAW_POINTS.schema)


@pytest.mark.parametrize("form", [JOINT, ADDITIVE])
@pytest.mark.parametrize("per_parameter", [3.22e-8, 0.43])
def test_the_optimum_is_that_of_brute_force(form: FunctionalForm, per_parameter: float) -> None:
    size, model = (one.ravel() for one in np.meshgrid(np.geomspace(1e3, 5e5, 5), np.geomspace(5e5, 8.7e7, 5)))
    points = LawPoints(size, model, np.ones(25))
    frame = DataScale.from_points(points)
    one = Fit(form, np.array([-1.0, 0.57, -0.5, 1.39, 0.03]), frame, points, 0.0, 1, 1)
    budget, per_label = 1e6, 0.6
    n, d, loss = optimum(one, budget, per_label, per_parameter)
    assert n * per_parameter + d * per_label == pytest.approx(budget)
    shares = np.concatenate([np.geomspace(1e-9, 0.5, 20000), 1 - np.geomspace(1e-9, 0.5, 20000)])
    every = one.predict(points.with_sizes((1 - shares) * budget / per_label, shares * budget / per_parameter))
    assert loss <= every.min() * (1 + 1e-6)
    assert n == pytest.approx(shares[every.argmin()] * budget / per_parameter, rel=5e-3)


def test_labels_needed_give_the_loss_and_none_is_promised_far_away() -> None:
    one = fit(SIZE, LawPoints(SIZES, np.full(6, np.nan), planted(SIZES)))
    loss = loss_at(one, 6000.0)
    assert size_for_loss(one, loss) == pytest.approx(6000, rel=1e-6)
    assert size_for_loss(one, loss_at(one, 200.0)) == pytest.approx(200, rel=1e-6)
    assert size_for_loss(one, 0.31) == float("inf")  # more than four times the largest size


@pytest.mark.slow
def test_a_law_tells_the_next_step_what_money_buys_and_what_a_target_takes() -> None:
    laws = found_of(rows("nDCG@10", 0.002))
    planned = plan_laws(laws, PlanRequest(budget=600, target=0.83, per_label=0.6), 0)
    assert [row["option"] for row in planned] == ["next step", "budget", "target"]
    assert {name: found.verdict for name, found in laws.items()} == {LawKey("nDCG@10", "labels"): "law"}
    step, budget, target = planned
    by_law = step["amount"]
    assert (planted(np.array([4096.0])) - planted(np.array([4096.0 + by_law])))[0] / 4 == pytest.approx(0.01, rel=0.1)
    assert step["gain"] == 0.01
    assert step["money"] == pytest.approx(0.6 * by_law)
    assert step["money_low"] < step["money"] < step["money_high"]
    assert budget["amount"] == pytest.approx(1000)
    truth = (planted(np.array([4096.0])) - planted(np.array([5096.0])))[0] / 4
    assert budget["gain_low"] < budget["gain"] < budget["gain_high"]
    assert budget["gain"] == pytest.approx(truth, abs=0.001)
    assert "the budget buys 1,000 queries" in budget["advice"]
    assert loss_at(
        fit(SIZE, LawPoints(SIZES, np.full(6, np.nan), planted(SIZES) / 4)), 4096 + target["amount"]
    ) == pytest.approx(0.17, abs=0.001)


def test_where_no_law_stands_it_says_what_to_label_first() -> None:
    (row,) = plan_laws(found_of(rows("nDCG@10", 0.002, SIZES[:3])), PlanRequest(budget=600, per_label=0.6), 0)
    assert (row["option"], row["amount"]) == ("label first", 3584)
    assert "not identifiable yet" in row["advice"]
    assert "label 3,584 more queries, and train at sizes 1,024, 2,048, 4,096 first" in row["advice"]


@pytest.mark.slow
def test_labels_that_teach_nothing_are_not_asked_for() -> None:
    flat = rows("nDCG@10", 0.0)
    flat = flat.set_column(flat.schema.get_field_index("value"), flat.schema.field("value"), pa.array([0.5] * 18))
    (row,) = plan_laws(found_of(flat), PlanRequest(budget=600, per_label=0.6), 0)
    assert row["amount"] == 0
    assert "no law predicts what more of these labels would bring" in row["advice"]


@pytest.mark.slow
def test_what_more_than_four_times_the_size_would_take_has_no_amount() -> None:
    step, target = plan_laws(found_of(rows("nDCG@10", 0.002)), PlanRequest(target=0.92), 0)
    assert step["amount"] is not None
    assert target["amount"] is None
    assert "more than 12,288 more queries" in target["advice"]


def test_prices_are_those_said_or_of_people_or_of_the_judge() -> None:
    took = MeasuredCosts(
        per_query=0.02,
        minutes=30.0,
        models=(ModelCost("a", 1e6, 3600, 1.0, 3600.0), ModelCost("b", 4e6, 3600, 0.5, 0.0)),
    )
    assert PlanRequest(per_label=0.6, per_hour=20).with_prices(took).per_label == 0.6
    assert PlanRequest(per_hour=20).with_prices(took).per_label == pytest.approx(10)
    assert PlanRequest().with_prices(took).per_label == 0.02
    assert PlanRequest().with_prices(took).per_parameter is None
    assert PlanRequest(per_gpu_hour=3).with_prices(took).per_parameter == pytest.approx(3 * 2 / 4e6)


@pytest.mark.slow
def test_a_joint_law_gives_the_model_and_the_labels_of_a_budget() -> None:
    draws, found = np.random.default_rng(0), []
    for model in (1e6, 4e6, 1.6e7, 6.4e7):
        for size in SIZES:
            for seed in range(2):
                loss = (((4e5 / model) ** 0.5 + 300 / size) ** 0.7 + 0.2) * np.exp(draws.normal(0, 0.002))
                row = {"measure": "contrastive_entropy", "source": "labels", "size": int(size), "seed": seed}
                found.append(row | {"parameters": model, "value": float(loss)})
    points = pa.Table.from_pylist(found, schema=LAW_POINTS.schema)
    laws = found_of(points)
    (row,) = plan_laws(laws, PlanRequest(budget=3000, per_label=0.6, per_parameter=1e-5), 0)
    assert row["option"] == "model and labels", laws[LawKey("contrastive_entropy", "labels")].reason
    assert 0 < row["amount"] * 0.6 < 3000
    whole = laws[LawKey("contrastive_entropy", "labels")].full_fit
    assert whole is not None
    unpriced = LawPlan(
        LawKey("contrastive_entropy", "labels"), laws[LawKey("contrastive_entropy", "labels")], PlanRequest()
    )
    assert "give --budget" in unpriced.plan_joint(whole)["advice"]


def test_an_optimum_without_labels_is_not_to_be_trusted() -> None:
    size, model = (one.ravel() for one in np.meshgrid(np.geomspace(50, 800, 5), np.geomspace(2e6, 1e7, 4)))
    points = LawPoints(size, model, np.ones(20))
    wanted = PlanRequest(budget=1000, per_label=0.6, per_parameter=1e-4)
    said = []
    for labels in (-0.5, -30.0):  # what labels lower, as a logarithm: much, and next to nothing
        one = Fit(ADDITIVE, np.array([-1.0, 0.57, labels, 0.5, 0.03]), DataScale.from_points(points), points, 0.0, 1, 1)
        (row,) = [
            LawPlan(LawKey("loss", "labels"), LawResult(points, size > 0, size > 0, points, size), wanted).plan_joint(
                one
            )
        ]
        said.append(row["advice"])
    assert "not to be trusted" not in said[0]
    assert "and 0 labelled queries" in said[1]
    assert "below a quarter" in said[1]
