"""Charts of the commonest kinds, from a figure's table: shares, counts, estimates, and a log day by day."""

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
    Curve,
    CurvePoint,
    Curves,
    Dot,
    Multiples,
    Row,
    Rule,
)
from darklode.pipeline.report.numbers import number, share
from darklode.pipeline.report.source import Source

Series = Mapping[str, tuple[str, str]]
"""Columns of a table, each with its legend and tone."""


def stacked(table: pa.Table, label: str, series: Series, *, axis: str, most: int = 20, shares: bool = False) -> Chart:
    """A horizontal bar for each row, of one part for each series.

    Args:
        table: a row a bar.
        label: the column that names it.
        series: what it is made of.
        axis: what is counted.
        most: bars shown.
        shares: say what share of all each bar is.
    """
    rows = table.to_pylist()
    totals: list[int] = [sum(row[name] or 0 for name in series) for row in rows]
    scale, everything = AxisScale.up_to(max(totals, default=0)), sum(totals)
    legend = [(tone, said) for said, tone in series.values()] if len(series) > 1 else []
    drawn = []
    for row, total in zip(rows[:most], totals, strict=False):
        of_all = f" · {share(total / everything)}" if shares and everything else ""
        drawn.append(Row(number(row[label]), _parts(row, series, scale), number(total) + of_all))
    note = f"The first {most} are drawn." if len(rows) > most else ""
    return Chart(drawn, scale.axis(axis), legend=legend, note=note)


def _parts(row: Mapping[str, Any], series: Series, scale: AxisScale) -> list[Bar]:
    bars, reached = [], 0
    for name, (said, tone) in series.items():
        count = row[name] or 0
        if count:
            tip = f"{said}: {number(count)}"
            bars.append(Bar(scale.at(reached), scale.span(reached, reached + count), tone, tip))
            reached += count
    return bars


@dataclass(frozen=True)
class Bin:
    """A bin of a histogram: its place in percent of the axis, and what is in it."""

    start: float
    length: float
    said: str


@dataclass(frozen=True)
class Histogram:
    """Counts by bin; `what` is counted, `value` is its number in short."""

    label: str
    tone: str
    counts: Sequence[int]
    what: str
    value: str


def histograms(bins: Sequence[Bin], series: Sequence[Histogram], axis: Axis, rules: Sequence[Rule] = ()) -> Chart:
    """One histogram above the other, each as high as the row."""
    rows = []
    for one in series:
        highest = max(one.counts, default=0)
        columns = [
            Column(
                place.start,
                place.length,
                round(100 * count / highest, 2),
                one.tone,
                f"{place.said}: {number(count)} {one.what}",
            )
            for place, count in zip(bins, one.counts, strict=True)
            if count
        ]
        rows.append(Row(one.label, columns, one.value))
    return Chart(rows, axis, height=64, rules=rules)


def whole_bins(values: Sequence[int], most: int, unit: str, step: int = 5) -> tuple[list[Bin], Axis]:
    """A bin for each whole number from 0 on, one more for all above `most`; values are those that have one."""
    width = 100 / (most + 2)
    named = [(value, f"{number(value)} {unit}" if value <= most else f"more than {most} {unit}") for value in values]
    ticks = [(round((value + 0.5) * width, 2), str(value)) for value in range(0, most, step)]
    ticks.append((round((most + 1.5) * width, 2), f">{most}"))
    return [Bin(round(value * width, 2), round(width, 2), said) for value, said in named], Axis(unit, ticks)


LEAST_SPAN = 0.02


@dataclass(frozen=True)
class Whisker:
    """A number between 0 and 1 with its interval, and what it is of; `group` heads those that belong together.

    Where no interval is known, both of its ends are the number. `tone` is its own, else the chart's.
    """

    label: str
    middle: float
    low: float
    high: float
    of: str
    group: str = ""
    tone: str = ""


def whiskers(estimates: Sequence[Whisker], title: str, tone: str, note: str = "", zero: str = "") -> Chart:
    """A row for each estimate, on one axis that need not begin at 0 unless `zero` says what lies there."""
    scale = _around(estimates, zero=bool(zero))
    groups = [None, *(one.group for one in estimates)]
    headed = zip(groups, estimates, strict=False)
    rows = [_whisker(one, scale, tone, one.group if one.group != before else "", zero) for before, one in headed]
    rules = [Rule(scale.at(0), zero)] if zero else []
    return Chart(rows, scale.axis("", 4), title=title, note=note, rules=rules)


def small_whiskers(estimates: Sequence[Whisker], title: str, tone: str, note: str = "") -> Multiples:
    """A small chart for each group; estimates of a group follow one another."""
    scale = _around(estimates)
    charts = [
        Chart([_whisker(one, scale, tone) for one in same], scale.axis("", 2), title=group)
        for group, same in groupby(estimates, lambda one: one.group)
    ]
    return Multiples(charts, title, note)


def _around(estimates: Sequence[Whisker], *, zero: bool = False) -> AxisScale:
    ends = [end for one in estimates for end in (one.low, one.high)] + [0.0] * zero
    return AxisScale.around(min(ends), max(ends), LEAST_SPAN)


def _whisker(one: Whisker, scale: AxisScale, tone: str, group: str = "", zero: str = "") -> Row:
    digits = f"{'+' if zero else ''}.{4 if scale.high - scale.low < 0.05 else 3}f"
    dot = Dot(scale.at(one.middle), scale.at(one.low), scale.at(one.high), one.tone or tone, _tip(one))
    return Row(one.label, [dot], f"{one.middle:{digits}}", group=group)


def _tip(one: Whisker) -> str:
    interval = f", 95 % interval {one.low:.4f} to {one.high:.4f}" if one.low < one.high else ""
    return f"{one.middle:.4f}{interval}, {one.of}"


TONES = ("a", "b", "c", "d", "faint")


def curves(table: pa.Table, along: tuple[str, str], y: str, title: str) -> Curves:
    """A curve for each trial, where its value is known; those of one setting have one tone.

    Args:
        table: a row a point, trial by trial: setting, trial, both columns, and kept: whether it is the one that counts.
        along: the column to the right, and what it is.
        y: the column upwards.
        title: what the values are.
    """
    x, said = along
    rows = [row for row in table.to_pylist() if row[y] is not None]
    across = AxisScale.up_to(max((row[x] for row in rows), default=1))
    values = [row[y] for row in rows] or [0.0]
    upward = AxisScale.around(min(values), max(values), LEAST_SPAN)
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    tones = {one: TONES[min(place, len(TONES) - 1)] for place, one in enumerate(settings)}
    drawn = []
    for _, same in groupby(rows, lambda row: row["trial"]):
        mine = list(same)
        points = [CurvePoint(across.at(row[x]), upward.at(row[y]), _place(row, x, y), row["kept"]) for row in mine]
        drawn.append(Curve(points, tones[mine[0]["setting"]]))
    legend = [(tone, one) for one, tone in tones.items()] if len(settings) > 1 else []
    return Curves(drawn, across.axis(said, 4), upward.axis("", 4), title, legend)


def _place(row: Mapping[str, Any], x: str, y: str) -> str:
    return f"{row['setting']}, {x} {number(row[x])}: {row[y]:.4f}{', kept' if row['kept'] else ''}"


MEASURES = {"exposures": "faint", "clicks": "a", "queries": "c", "new_queries": "b"}
SOURCES = {
    "click_one_hop": ("own clicks", "a"),
    "relevance_one_hop": ("own relevance", "b"),
    "click_multi_hop": ("lent clicks", "c"),
    "relevance_multi_hop": ("lent relevance", "d"),
}
HEIGHT = 52


def evidence(table: pa.Table, _source: Source) -> list[Chart]:
    """What each day held, and the pairs it gave.

    Args:
        table: rows of `mining.statistics.nights`.
    """
    days = [day.isoformat() for day in table["date"].to_pylist()]
    bins = _bins(days)
    series = []
    for measure, tone in MEASURES.items():
        counts, named = table[measure].to_pylist(), measure.replace("_", " ")
        value = f"{number(sum(counts))} · last day {number(counts[-1])}"
        series.append(Histogram(named, tone, counts, named, value))
    chart = histograms(bins, series, _dates(days))
    legend = [(tone, f"pairs by {said}") for said, tone in SOURCES.values()]
    return [Chart([*chart.rows, _pairs(table, bins)], chart.axis, HEIGHT, legend=legend)]


def _bins(days: list[str]) -> list[Bin]:
    width = 100 / len(days)
    return [Bin(round(place * width, 3), round(width, 3), day) for place, day in enumerate(days)]


def _pairs(table: pa.Table, bins: list[Bin]) -> Row:
    """The pairs of each day, one source above the other."""
    rows = table.select(list(SOURCES)).to_pylist()
    highest = max((sum(row.values()) for row in rows), default=0) or 1
    columns = []
    for day, row in zip(bins, rows, strict=True):
        reached = 0
        for name, (said, tone) in SOURCES.items():
            if row[name]:
                bottom, reached = reached, reached + row[name]
                tip = f"{day.said}: {number(row[name])} pairs by {said}"
                ends = [round(100 * end / highest, 2) for end in (reached, bottom)]
                columns.append(Column(day.start, day.length, ends[0], tone, tip, ends[1]))
    return Row("new pairs", columns, number(sum(sum(row.values()) for row in rows)))


def _dates(days: list[str]) -> Axis:
    """The first, the middle and the last day are named."""
    width, places = 100 / len(days), sorted({0, len(days) // 2, len(days) - 1})
    return Axis("day, UTC", [(round((place + 0.5) * width, 2), days[place]) for place in places])
