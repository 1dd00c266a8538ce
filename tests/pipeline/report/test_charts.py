"""Charts from tables: parts that add up, bins, whiskers, and a log day by day."""

from datetime import date

import pyarrow as pa
import pytest

from darklode.pipeline.report.charts import (
    PAIR_SOURCES,
    Histogram,
    HistogramBin,
    Whisker,
    evidence,
    histograms,
    integer_bins,
    small_whiskers,
    stacked_bars,
    whiskers,
)
from darklode.pipeline.report.drawing import Axis, Bar, Chart, Column, Dot

SERIES = {"good": ("relevant", "a"), "bad": ("not relevant", "b")}


def bars(of: pa.Table, **given: object) -> list[list[tuple[float, float, str]]]:
    chart = stacked_bars(of, "name", SERIES, axis="pairs", **given)  # type: ignore[arg-type]
    return [[(bar.start, bar.length, bar.tone) for bar in row.marks if isinstance(bar, Bar)] for row in chart.rows]


def test_the_parts_of_a_bar_stand_end_to_end() -> None:
    table = pa.table({"name": ["x", "y", "z"], "good": [60, None, 0], "bad": [40, 20, 0]})
    assert bars(table) == [[(0, 60, "a"), (60, 40, "b")], [(0, 20, "b")], []]
    chart = stacked_bars(table, "name", SERIES, axis="pairs", shares=True)
    assert [row.value for row in chart.rows] == ["100 · 83.3 %", "20 · 16.7 %", "0 · 0 %"]
    assert chart.legend == [("a", "relevant"), ("b", "not relevant")]


def test_bars_beyond_the_most_are_left_out_and_it_is_said() -> None:
    table = pa.table({"name": list("abc"), "good": [1, 2, 300], "bad": [0, 0, 0]})
    chart = stacked_bars(table, "name", SERIES, axis="pairs", max_bars=2)
    assert [row.label for row in chart.rows] == ["a", "b"]
    assert chart.note == "First 2 rows."
    assert stacked_bars(table, "name", SERIES, axis="pairs", max_bars=3).note == ""


def test_one_series_needs_no_legend_and_nothing_at_all_has_a_scale() -> None:
    chart = stacked_bars(pa.table({"name": ["x"], "n": [0]}), "name", {"n": ("pairs", "a")}, axis="pairs", shares=True)
    assert (chart.legend, chart.rows[0].value, list(chart.rows[0].marks)) == ([], "0", [])


def test_each_histogram_is_as_high_as_its_highest_bin() -> None:
    bins = [HistogramBin(0, 50, "few"), HistogramBin(50, 50, "many")]
    series = [Histogram("raw", "a", [10, 5], "queries", "15"), Histogram("kept", "b", [0, 1], "queries", "1")]
    chart = histograms(bins, series, Axis())
    tops = [[(one.start, one.top) for one in row.marks if isinstance(one, Column)] for row in chart.rows]
    assert tops == [[(0, 100), (50, 50)], [(50, 100)]]
    assert chart.rows[1].marks[0].tip == "many: 1 queries"


def test_counts_and_bins_have_to_match() -> None:
    with pytest.raises(ValueError, match="zip"):
        histograms([HistogramBin(0, 100, "all")], [Histogram("raw", "a", [1, 2], "queries", "3")], Axis())


def test_whole_numbers_have_a_bin_each_and_the_rest_share_one() -> None:
    bins, axis = integer_bins([0, 2, 9], max_value=8, unit="words")
    assert [(one.start, one.label) for one in bins] == [(0, "0 words"), (20, "2 words"), (90, "more than 8 words")]
    assert {one.length for one in bins} == {10}
    assert axis.ticks == [(5.0, "0"), (55.0, "5"), (95.0, ">8")]


def test_whiskers_share_an_axis_and_a_group_is_named_once() -> None:
    estimates = [
        Whisker("bm25", 0.7, 0.65, 0.75, "9 queries", "all"),
        Whisker("dense", 0.63, 0.61, 0.65, "9 queries", "all"),
        Whisker("bm25", 0.9, 0.85, 0.95, "4 queries", "acme"),
    ]
    chart = whiskers(estimates, "Recall", "a")
    assert [row.group for row in chart.rows] == ["all", "", "acme"]
    assert [row.value for row in chart.rows] == ["0.700", "0.630", "0.900"]
    dots = [row.marks[0] for row in chart.rows]
    assert all(isinstance(dot, Dot) and 0 <= dot.low < dot.at < dot.high <= 100 for dot in dots)
    assert chart.axis.ticks[0][1] == "0.6", "it need not begin at 0"


def test_small_charts_stand_side_by_side_on_one_scale() -> None:
    estimates = [
        Whisker("bm25", 0.93, 0.92, 0.94, "9 queries", "acme"),
        Whisker("dense", 0.95, 0.94, 0.96, "9 queries", "acme"),
        Whisker("bm25", 0.99, 0.98, 1.0, "4 queries", "b"),
    ]
    small = small_whiskers(estimates, "Recall", "a", "cut")
    assert [(one.title, len(one.rows)) for one in small.drawings if isinstance(one, Chart)] == [("acme", 2), ("b", 1)]
    places = [mark.at for one in small.drawings if isinstance(one, Chart) for row in one.rows for mark in row.marks]
    assert places == [12.5, 37.5, 87.5]
    assert (small.title, small.note) == ("Recall", "cut")


def test_what_has_no_interval_says_none() -> None:
    (row,) = whiskers([Whisker("bm25", 0.5, 0.5, 0.5, "9 queries")], "", "a").rows
    assert row.marks[0].tip == "0.5000, 9 queries"


def test_estimates_that_are_near_are_told_apart() -> None:
    near = [Whisker("x", 0.70012, 0.7, 0.7003, "9 queries"), Whisker("y", 0.70018, 0.7, 0.7003, "9 queries")]
    assert [row.value for row in whiskers(near, "", "a").rows] == ["0.7001", "0.7002"]


def nights(**given: list[int]) -> pa.Table:
    days = [date(2026, 3, 1), date(2026, 3, 2)]
    zeros = {name: [0, 0] for name in ("exposures", "clicks", "queries", "new_queries", *PAIR_SOURCES)}
    return pa.table({"date": days, **zeros, **given})


def test_a_days_pairs_stand_one_source_above_the_other() -> None:
    (chart,) = evidence(nights(click_one_hop=[1, 3], relevance_multi_hop=[0, 1]), None)  # type: ignore[arg-type]
    pairs = chart.rows[-1]
    placed = [(one.start, one.bottom, one.top, one.tone) for one in pairs.marks if isinstance(one, Column)]
    assert placed == [(0, 0, 25, "a"), (50, 0, 75, "a"), (50, 75, 100, "d")]
    assert pairs.value == "5"


def test_a_log_without_pairs_is_drawn_too() -> None:
    (chart,) = evidence(nights(clicks=[4, 2]), None)  # type: ignore[arg-type]
    assert [row.value for row in chart.rows][1] == "6 · last day 2"
    assert (list(chart.rows[-1].marks), chart.rows[-1].value) == ([], "0")
    assert chart.axis.ticks == [(25.0, "2026-03-01"), (75.0, "2026-03-02")]
