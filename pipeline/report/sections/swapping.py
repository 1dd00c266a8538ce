"""What an adapted encoder changes for live queries, as `darklode adapt swap` found it."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from darklode.pipeline.report.charts import Bin, Histogram, histograms
from darklode.pipeline.report.drawing import Axis, Chart, Quote, Quotes, Text
from darklode.pipeline.report.figure import Figure, FigureSection, asked
from darklode.pipeline.report.numbers import number
from darklode.pipeline.report.passages import plain
from darklode.pipeline.report.source import Source

DEPTH = 10
SHOWN, NAMED = 20, 5

OVERLAPS = """
    SELECT overlap, count(*) AS queries, CAST(sum(searches) AS BIGINT) AS searches FROM swap
    GROUP BY overlap ORDER BY overlap
"""
CHANGED = f"""
    SELECT query, searches, overlap, base_ids, adapted_ids, base_titles, adapted_titles FROM swap
    WHERE overlap < {DEPTH} ORDER BY overlap, searches DESC NULLS LAST, query LIMIT {SHOWN}
"""


def _overlaps(table: pa.Table, _source: Source) -> list[Chart]:
    rows = {row["overlap"]: row for row in table.to_pylist()}
    width = 100 / (DEPTH + 1)
    bins = [Bin(round(place * width, 2), round(width, 2), f"{place} stay") for place in range(DEPTH + 1)]
    ticks = [(round((place + 0.5) * width, 2), str(place)) for place in range(DEPTH + 1)]
    axis = Axis("texts of the first ten that stay", ticks)
    series = [_counted(rows, "queries", "a")]
    if any(row["searches"] is not None for row in rows.values()):
        series.append(_counted(rows, "searches", "b"))
    return [histograms(bins, series, axis)]


def _counted(rows: dict[int, dict[str, Any]], what: str, tone: str) -> Histogram:
    counts = [rows[place][what] or 0 if place in rows else 0 for place in range(DEPTH + 1)]
    return Histogram(what, tone, counts, what, number(sum(counts)))


def _changed(table: pa.Table, _source: Source) -> list[Quotes]:
    return [Quotes([_quote(row) for row in table.to_pylist()])]


def _quote(row: dict[str, Any]) -> Quote:
    tags = [f"{row['overlap']} of {len(row['base_ids'])} stay"]
    if row["searches"] is not None:
        tags.append(f"{number(row['searches'])} searches")
    return Quote(
        row["query"], tags, [*_listed(row, "base", "adapted", "goes"), *_listed(row, "adapted", "base", "comes")]
    )


def _listed(row: dict[str, Any], mine: str, other: str, role: str) -> list[Text]:
    """The titles that only one of the lists has, a line each."""
    found = zip(row[f"{mine}_ids"], row[f"{mine}_titles"], strict=True)
    titles = list(dict.fromkeys(title for one, title in found if one not in row[f"{other}_ids"]))
    more = [f"and {number(len(titles) - NAMED)} more"] if len(titles) > NAMED else []
    return [replace(plain("\n".join([*titles[:NAMED], *more])), role=role)] if titles else []


SECTION = FigureSection(
    "swap",
    "What changes for live queries",
    (
        Figure(
            "swap-overlap",
            "How much stays",
            "Queries by how many of the base's first ten texts are among the adapted encoder's: what changes, not what "
            "gets better.",
            asked(OVERLAPS),
            _overlaps,
            ("swap",),
            wide=True,
        ),
        Figure(
            "swap-queries",
            "Queries that change most",
            "By the titles of what leaves their first ten and of what comes; often asked ones before others.",
            asked(CHANGED),
            _changed,
            ("swap",),
            wide=True,
        ),
    ),
)
