"""Plans: the optimum against brute force, what a target takes, and what to label where no law stands."""

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.laws.fitting import Fit, fit
from darklode.pipeline.laws.forms import ADDITIVE, JOINT, SIZE, Form, Frame, Points
from darklode.pipeline.laws.plan import Wanted, at, costs, needed, optimum, plans, told
from darklode.schemas.law_tables import LAW_POINTS

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
def test_the_optimum_is_that_of_brute_force(form: Form, per_parameter: float) -> None:
    size, model = (one.ravel() for one in np.meshgrid(np.geomspace(1e3, 5e5, 5), np.geomspace(5e5, 8.7e7, 5)))
    points = Points(size, model, np.ones(25))
    frame = Frame.of(points)
    one = Fit(form, np.array([-1.0, 0.57, -0.5, 1.39, 0.03]), frame, points, 0.0, 1, 1)
    budget, per_label = 1e6, 0.6
    n, d, loss = optimum(one, budget, per_label, per_parameter)
    assert n * per_parameter + d * per_label == pytest.approx(budget)
    shares = np.concatenate([np.geomspace(1e-9, 0.5, 20000), 1 - np.geomspace(1e-9, 0.5, 20000)])
    every = one.predict(points.at((1 - shares) * budget / per_label, shares * budget / per_parameter))
    assert loss <= every.min() * (1 + 1e-6)
    assert n == pytest.approx(shares[every.argmin()] * budget / per_parameter, rel=5e-3)


def test_labels_needed_give_the_loss_and_none_is_promised_far_away() -> None:
    one = fit(SIZE, Points(SIZES, np.full(6, np.nan), planted(SIZES)))
    loss = at(one, 6000.0)
    assert needed(one, loss) == pytest.approx(6000, rel=1e-6)
    assert needed(one, at(one, 200.0)) == pytest.approx(200, rel=1e-6)
    assert needed(one, 0.31) == float("inf")  # more than four times the largest size


def test_a_law_tells_the_next_step_what_money_buys_and_what_a_target_takes() -> None:
    (row,) = plans(rows("nDCG@10", 0.002), Wanted(budget=600, target=0.83, per_label=0.6), 0)
    assert row["verdict"] == "law"
    assert row["bought"] == pytest.approx(1000)
    truth = 1 - planted(np.array([5096.0]))[0] / 4
    assert row["reached_low"] < row["reached"] < row["reached_high"]
    assert row["reached"] == pytest.approx(truth, abs=0.002)
    by_law = row["queries_for_step"]
    assert (planted(np.array([4096.0])) - planted(np.array([4096.0 + by_law])))[0] / 4 == pytest.approx(0.01, rel=0.1)
    assert row["money_for_step"] == pytest.approx(0.6 * by_law)
    assert "the budget buys 1,000" in told(row)


def test_where_no_law_stands_it_says_what_to_label_first() -> None:
    (row,) = plans(rows("nDCG@10", 0.002, SIZES[:3]), Wanted(budget=600, per_label=0.6), 0)
    assert row["verdict"] == "not identifiable yet"
    assert "train at sizes 1,024, 2,048, 4,096 first" in told(row)
    assert "bought" not in row


def test_labels_that_teach_nothing_are_not_asked_for() -> None:
    flat = rows("nDCG@10", 0.0)
    flat = flat.set_column(flat.schema.get_field_index("value"), flat.schema.field("value"), pa.array([0.5] * 18))
    (row,) = plans(flat, Wanted(budget=600, per_label=0.6), 0)
    assert row["verdict"] == "no law"
    assert "no law says what more of these labels would bring" in told(row)


def test_costs_are_the_judges_tokens_at_its_prices() -> None:
    one = {"calls": 60, "queries": 10, "positives": 15, "prompt_tokens": 60000, "completion_tokens": 6000}
    assert costs([one], (2.0, 10.0)) == {
        "judged_queries": 10,
        "calls_per_positive": 4.0,
        "price_per_query": pytest.approx(0.018),
    }
    assert costs([one], (0.0, 0.0))["price_per_query"] is None
    assert costs([], (2.0, 10.0)) == {}
