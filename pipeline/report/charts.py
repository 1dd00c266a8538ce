"""Common charts made from a figure's table: bars, histograms, intervals, curves, and a log by day."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from darklode.pipeline.report.drawing import (
    Axis,
    AxisScale,
    Bar,
    Chart,
    Column,
    CurveLine,
    CurvePoint,
    Curves,
    Dot,
    Multiples,
    Row,
    Rule,
)
from darklode.pipeline.report.formatting import number, share
from darklode.pipeline.report.source import ReportSource

Series = Mapping[str, tuple[str, str]]
"""Legend and tone by column."""


def stacked_bars(
    table: pa.Table, label: str, series: Series, *, axis: str, max_bars: int = 20, shares: bool = False
) -> Chart:
    """A horizontal bar per row, stacked from the columns in `series`.

    Args:
        table: one row per bar.
        label: column with the bar's label.
        axis: axis title.
        max_bars: maximum number of bars.
        shares: whether to show each bar's share of the total.
    """
    rows = table.to_pylist()
    totals: list[int] = [sum(row[name] or 0 for name in series) for row in rows]
    scale, grand_total = AxisScale.up_to(max(totals, default=0)), sum(totals)
    legend = [(tone, label_text) for label_text, tone in series.values()] if len(series) > 1 else []
    drawn = []
    for row, total in zip(rows[:max_bars], totals, strict=False):
        share_text = f" · {share(total / grand_total)}" if shares and grand_total else ""
        drawn.append(Row(number(row[label]), _parts(row, series, scale), number(total) + share_text))
    note = f"First {max_bars} rows." if len(rows) > max_bars else ""
    return Chart(drawn, scale.axis(axis), legend=legend, note=note)


def _parts(row: Mapping[str, Any], series: Series, scale: AxisScale) -> list[Bar]:
    bars, offset = [], 0
    for name, (label_text, tone) in series.items():
        count = row[name] or 0
        if count:
            tip = f"{label_text}: {number(count)}"
            bars.append(Bar(scale.position_of(offset), scale.span(offset, offset + count), tone, tip))
            offset += count
    return bars


@dataclass(frozen=True)
class HistogramBin:
    """A bin of a histogram; start and length are percent of the axis."""

    start: float
    length: float
    label: str


@dataclass(frozen=True)
class Histogram:
    """Counts per bin; `title` is the counted unit, `value` the text beside the histogram."""

    label: str
    tone: str
    counts: Sequence[int]
    title: str
    value: str


def histograms(
    bins: Sequence[HistogramBin], series: Sequence[Histogram], axis: Axis, rules: Sequence[Rule] = ()
) -> Chart:
    """Histograms stacked vertically, each scaled to its own maximum."""
    rows = []
    for histogram in series:
        highest = max(histogram.counts, default=0)
        columns = [
            Column(
                position.start,
                position.length,
                round(100 * count / highest, 2),
                histogram.tone,
                f"{position.label}: {number(count)} {histogram.title}",
            )
            for position, count in zip(bins, histogram.counts, strict=True)
            if count
        ]
        rows.append(Row(histogram.label, columns, histogram.value))
    return Chart(rows, axis, height=64, rules=rules)


def integer_bins(values: Sequence[int], max_value: int, unit: str, step: int = 5) -> tuple[list[HistogramBin], Axis]:
    """Bins and axis for whole numbers from 0, with one bin for all above `max_value`; only `values` get a bin."""
    width = 100 / (max_value + 2)
    labels = [
        (value, f"{number(value)} {unit}" if value <= max_value else f"more than {max_value} {unit}")
        for value in values
    ]
    ticks = [(round((value + 0.5) * width, 2), str(value)) for value in range(0, max_value, step)]
    ticks.append((round((max_value + 1.5) * width, 2), f">{max_value}"))
    return [HistogramBin(round(value * width, 2), round(width, 2), label) for value, label in labels], Axis(unit, ticks)


MIN_SPAN = 0.02
"""Minimum length of a chart's axis, so that tiny differences between estimates do not fill it."""


@dataclass(frozen=True)
class Whisker:
    """An estimate between 0 and 1 with its interval.

    Attributes:
        low, high: equal to `middle` if there is no interval.
        basis: what it is computed from, for the tooltip.
        group: heading above estimates that belong together.
        tone: overrides the chart's tone.
    """

    label: str
    middle: float
    low: float
    high: float
    basis: str
    group: str = ""
    tone: str = ""


def whiskers(estimates: Sequence[Whisker], title: str, tone: str, note: str = "", zero: str = "") -> Chart:
    """A row per estimate on a common axis; with `zero`, the axis includes 0 and marks it with this label."""
    scale = _scale_around(estimates, zero=bool(zero))
    previous_groups = [None, *(estimate.group for estimate in estimates)]
    rows = [
        _whisker(estimate, scale, tone, estimate.group if estimate.group != previous_group else "", zero)
        for previous_group, estimate in zip(previous_groups, estimates, strict=False)
    ]
    rules = [Rule(scale.position_of(0), zero)] if zero else []
    return Chart(rows, scale.axis("", 4), title=title, note=note, rules=rules)


def small_whiskers(estimates: Sequence[Whisker], title: str, tone: str, note: str = "") -> Multiples:
    """A small chart per group; estimates must be sorted by group."""
    scale = _scale_around(estimates)
    charts = [
        Chart([_whisker(estimate, scale, tone) for estimate in group_estimates], scale.axis("", 2), title=group)
        for group, group_estimates in groupby(estimates, lambda estimate: estimate.group)
    ]
    return Multiples(charts, title, note)


def _scale_around(estimates: Sequence[Whisker], *, zero: bool = False) -> AxisScale:
    """Scale that contains all intervals, and 0 if `zero`."""
    bounds = [bound for estimate in estimates for bound in (estimate.low, estimate.high)] + [0.0] * zero
    return AxisScale.including(min(bounds), max(bounds), MIN_SPAN)


def _whisker(estimate: Whisker, scale: AxisScale, tone: str, group: str = "", zero: str = "") -> Row:
    digits = f"{'+' if zero else ''}.{4 if scale.high - scale.low < 0.05 else 3}f"
    dot = Dot(
        scale.position_of(estimate.middle),
        scale.position_of(estimate.low),
        scale.position_of(estimate.high),
        estimate.tone or tone,
        _tip(estimate),
    )
    return Row(estimate.label, [dot], f"{estimate.middle:{digits}}", group=group)


def _tip(estimate: Whisker) -> str:
    """Text shown when the pointer is over an estimate."""
    interval = f", 95 % interval {estimate.low:.4f} to {estimate.high:.4f}" if estimate.low < estimate.high else ""
    return f"{estimate.middle:.4f}{interval}, {estimate.basis}"


TONES = ("a", "b", "c", "d", "faint")


def curves(table: pa.Table, along: tuple[str, str], y: str, title: str) -> Curves:
    """A curve per trial; trials with the same setting share a tone.

    Args:
        table: one row per point, sorted by trial: setting, trial, the x and y columns, and kept (the selected point).
        along: x column and axis title.
        y: y column; nulls are skipped.
        title: title of the chart.
    """
    x, axis_title = along
    rows = [row for row in table.to_pylist() if row[y] is not None]
    x_scale = AxisScale.up_to(max((row[x] for row in rows), default=1))
    values = [row[y] for row in rows] or [0.0]
    y_scale = AxisScale.including(min(values), max(values), MIN_SPAN)
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    tones = {setting: TONES[min(index, len(TONES) - 1)] for index, setting in enumerate(settings)}
    drawn = []
    for _, trial_group in groupby(rows, lambda row: row["trial"]):
        trial_rows = list(trial_group)
        points = [
            CurvePoint(x_scale.position_of(row[x]), y_scale.position_of(row[y]), _point_tip(row, x, y), row["kept"])
            for row in trial_rows
        ]
        drawn.append(CurveLine(points, tones[trial_rows[0]["setting"]]))
    legend = [(tone, setting) for setting, tone in tones.items()] if len(settings) > 1 else []
    return Curves(drawn, x_scale.axis(axis_title, 4), y_scale.axis("", 4), title, legend)


def _point_tip(row: Mapping[str, Any], x: str, y: str) -> str:
    return f"{row['setting']}, {x} {number(row[x])}: {row[y]:.4f}{', selected' if row['kept'] else ''}"


DAILY_MEASURES = {"exposures": "faint", "clicks": "a", "queries": "c", "new_queries": "b"}
# Legend and tone by column of `statistics.nights`.
PAIR_SOURCES = {
    "click_one_hop": ("one-hop clicks", "a"),
    "relevance_one_hop": ("one-hop relevance", "b"),
    "click_multi_hop": ("multi-hop clicks", "c"),
    "relevance_multi_hop": ("multi-hop relevance", "d"),
}
DAILY_ROW_HEIGHT = 52


def evidence(table: pa.Table, _source: ReportSource) -> list[Chart]:
    """Impressions, clicks, queries and new pairs per day, from the rows of `statistics.nights`."""
    days = [day.isoformat() for day in table["date"].to_pylist()]
    bins = _day_bins(days)
    series = []
    for measure, tone in DAILY_MEASURES.items():
        counts, measure_label = table[measure].to_pylist(), measure.replace("_", " ")
        value = f"{number(sum(counts))} · last day {number(counts[-1])}"
        series.append(Histogram(measure_label, tone, counts, measure_label, value))
    chart = histograms(bins, series, _date_axis(days))
    legend = [(tone, f"pairs from {source_label}") for source_label, tone in PAIR_SOURCES.values()]
    return [Chart([*chart.rows, _new_pairs_row(table, bins)], chart.axis, DAILY_ROW_HEIGHT, legend=legend)]


def _day_bins(days: list[str]) -> list[HistogramBin]:
    width = 100 / len(days)
    return [HistogramBin(round(index * width, 3), round(width, 3), day) for index, day in enumerate(days)]


def _new_pairs_row(table: pa.Table, bins: list[HistogramBin]) -> Row:
    """New pairs per day, stacked by source."""
    rows = table.select(list(PAIR_SOURCES)).to_pylist()
    highest = max((sum(row.values()) for row in rows), default=0) or 1
    columns = []
    for day, row in zip(bins, rows, strict=True):
        offset = 0
        for name, (source_label, tone) in PAIR_SOURCES.items():
            if row[name]:
                bottom, offset = offset, offset + row[name]
                tip = f"{day.label}: {number(row[name])} pairs from {source_label}"
                ends = [round(100 * end / highest, 2) for end in (offset, bottom)]
                columns.append(Column(day.start, day.length, ends[0], tone, tip, ends[1]))
    return Row("new pairs", columns, number(sum(sum(row.values()) for row in rows)))


def _date_axis(days: list[str]) -> Axis:
    """Axis with the first, middle and last day."""
    width, indices = 100 / len(days), sorted({0, len(days) // 2, len(days) - 1})
    return Axis("day (UTC)", [(round((index + 0.5) * width, 2), days[index]) for index in indices])
