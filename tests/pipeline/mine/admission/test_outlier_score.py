"""P-values of a day's measures, and their combination."""

from collections.abc import Mapping
from datetime import date, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.mine.admission.measures import MEASURES
from darklode.pipeline.mine.admission.outlier_score import (
    MIN_DAYS,
    N_MEASURES,
    DayScores,
    cauchy_combination,
    combine,
    p_value,
    sampling_variance,
    score_day,
)
from darklode.pipeline.mine.admission.stage import create_past_tables

DAY = date(2026, 3, 30)
PLACE = {measure.name: number for number, measure in enumerate(MEASURES)}


def scores_of(
    before: Mapping[int, float], value: float, measure: str = "searches", state: str = "admitted", size: float = 1.0
) -> DayScores:
    """Scores of a day with one measure, after days so many days before."""
    days = sorted(before)
    rows = pa.table(
        {
            "tenant": pa.repeat("t", len(days)),
            "date": pa.array([DAY - timedelta(back) for back in days], pa.date32()),
            "measure": pa.repeat(measure, len(days)),
            "value": pa.array([before[back] for back in days], pa.float64()),
            "size": pa.array([size] * len(days), pa.float64()),
            "expected": pa.nulls(len(days), pa.float64()),
            "distance": pa.nulls(len(days), pa.float64()),
            "p_value": pa.nulls(len(days), pa.float64()),
            "state": pa.repeat(state, len(days)),
            "deviates": pa.repeat(pa.scalar(False), len(days)),
        }
    )
    with duckdb.connect() as connection:
        create_past_tables(connection)
        connection.register("rows_before", rows)
        connection.execute("INSERT INTO measures_before FROM rows_before")
        today = pa.table({"tenant": ["t"], "measure": [measure], "value": [value], "size": [size]})
        return score_day(connection, today, str(DAY))


STEADY = {back: 9.2 + 0.04 * (-1) ** back for back in range(1, 43)}


def test_a_value_like_the_days_before_is_ordinary_and_half_of_it_is_not() -> None:
    assert scores_of(STEADY, 9.2).night[0] > 0.3
    assert scores_of(STEADY, 9.2 - np.log(2)).night[0] < 0.001
    assert scores_of(STEADY, 9.2 + np.log(2)).night[0] < 0.001


def test_a_day_is_compared_from_five_days_on() -> None:
    few = dict.fromkeys(range(1, MIN_DAYS), 9.2)
    assert np.isnan(scores_of(few, 3.0).night[0])
    assert scores_of(few, 3.0).measure_rows(str(DAY)).to_pylist()[0]["expected"] is None
    assert not np.isnan(scores_of(few | {MIN_DAYS: 9.2}, 3.0).night[0])


def test_held_days_teach_the_volume_and_nothing_else() -> None:
    assert scores_of(STEADY, 9.2, state="held").night[0] > 0.3
    assert np.isnan(scores_of(STEADY, 1.2, "known_queries", state="held", size=1e4).night[0])


def test_what_may_only_be_low_is_never_too_high() -> None:
    known = dict.fromkeys(range(1, 43), 1.0)
    assert scores_of(known, 1.5, "known_queries", size=1e5).distances[0, PLACE["known_queries"]] == 0
    assert scores_of(known, 0.5, "known_queries", size=1e5).night[0] < 1e-4


def test_a_share_of_few_searches_is_left_to_chance() -> None:
    known = dict.fromkeys(range(1, 43), 1.0)
    few, many = (scores_of(known, 0.7, "known_queries", size=size).night[0] for size in (10, 1e5))
    assert few > 0.03 > 0.003 > many


def test_p_values_are_those_of_the_t_distribution_on_the_implausible_side() -> None:
    z, df = np.array([[-2.0, -2.0, -2.0]]), np.full((1, 3), 1e9)
    assert p_value(z, df, np.array(["both", "low", "high"]))[0] == pytest.approx([0.0455, 0.02275, 0.97725], abs=1e-4)
    assert p_value(np.array([-2.0]), np.array([3.0]), np.array(["low"]))[0] == pytest.approx(0.0697, abs=1e-4)
    assert np.isnan(p_value(np.array([np.nan]), np.array([3.0]), np.array(["low"]))[0])


def test_the_cauchy_combination_finds_one_small_p_value_among_many() -> None:
    assert cauchy_combination(np.array([1e-6, *[0.999] * 9])) == pytest.approx(1e-5, rel=0.01)
    assert cauchy_combination(np.array([0.3])) == pytest.approx(0.3)
    assert cauchy_combination(np.array([0.01, np.nan])) == pytest.approx(0.01)
    assert np.isnan(cauchy_combination(np.array([np.nan])))


def test_many_small_deviations_of_one_group_are_pooled() -> None:
    is_in = np.array([measure.group == "records" for measure in MEASURES])
    past = np.random.default_rng(3).random((1, N_MEASURES, 56))
    together, alone = np.full((1, N_MEASURES), 0.5), np.full((1, N_MEASURES), 0.5)
    together[:, is_in] = 0.02
    alone[:, is_in.argmax()] = 0.02
    assert combine(together, past)[0] < 0.01
    assert combine(alone, past)[0] > 0.03


def test_the_combined_p_value_is_calibrated_for_independent_measures() -> None:
    chance = np.random.default_rng(5)
    today, past = chance.random((4000, N_MEASURES)), chance.random((4000, N_MEASURES, 40))
    p_values = combine(today, past)
    for rate in (0.003, 0.01, 0.05):
        assert (p_values < rate).mean() < 2 * rate + 0.001


def test_the_sampling_variance_depends_on_scale_and_size() -> None:
    scales, sizes = np.array(["ratio", "share", "profile"]), np.array([100.0, 100.0, 100.0])
    assert sampling_variance(scales, sizes, np.log([4.0, 1, 1])) == pytest.approx([1 / 400, 1 / 400, 1 / 200])


def test_rows_of_a_day_have_value_forecast_distance_and_p_value() -> None:
    (row,) = scores_of(STEADY, 9.0).measure_rows(str(DAY)).to_pylist()
    assert (row["tenant"], row["date"], row["measure"], row["value"]) == ("t", DAY, "searches", 9.0)
    assert row["expected"] == pytest.approx(9.2, abs=0.05)
    assert row["distance"] > 1
    assert 0 < row["p_value"] < 0.3
