"""A search log, day by day."""

import pyarrow as pa

from pipeline.report.bars import Bin, Histogram, histograms
from pipeline.report.drawing import Axis, Chart, Column, Row
from pipeline.report.numbers import number
from pipeline.report.source import Source

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
