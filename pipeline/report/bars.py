"""Charts of the commonest kinds, from a figure's table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.report.drawing import Axis, Bar, Chart, Column, Row, Rule
from pipeline.report.numbers import number, share
from pipeline.report.scale import Scale

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
    scale, everything = Scale.up_to(max(totals, default=0)), sum(totals)
    legend = [(tone, said) for said, tone in series.values()] if len(series) > 1 else []
    drawn = []
    for row, total in zip(rows[:most], totals, strict=False):
        of_all = f" · {share(total / everything)}" if shares and everything else ""
        drawn.append(Row(number(row[label]), _parts(row, series, scale), number(total) + of_all))
    note = f"The first {most} are drawn." if len(rows) > most else ""
    return Chart(drawn, scale.axis(axis), legend=legend, note=note)


def _parts(row: Mapping[str, Any], series: Series, scale: Scale) -> list[Bar]:
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
