"""Report section of `darklode adapt preview`: changes in the top 10 of live queries."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from darklode.pipeline.report.charts import Histogram, HistogramBin, histograms
from darklode.pipeline.report.drawing import Axis, Chart, Quote, Quotes, Text
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.passages import plain
from darklode.pipeline.report.source import ReportSource

DEPTH = 10
MAX_QUERIES, MAX_TITLES = 20, 5

OVERLAP_COUNTS_SQL = """
    SELECT overlap, count(*) AS queries, CAST(sum(searches) AS BIGINT) AS searches FROM encoder_swap
    GROUP BY overlap ORDER BY overlap
"""
CHANGED_QUERIES_SQL = f"""
    SELECT query, searches, overlap, base_ids, adapted_ids, base_titles, adapted_titles FROM encoder_swap
    WHERE overlap < {DEPTH} ORDER BY overlap, searches DESC NULLS LAST, query LIMIT {MAX_QUERIES}
"""


def _overlaps(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = {row["overlap"]: row for row in table.to_pylist()}
    width = 100 / (DEPTH + 1)
    bins = [
        HistogramBin(round(n_shared * width, 2), round(width, 2), f"{n_shared} unchanged")
        for n_shared in range(DEPTH + 1)
    ]
    ticks = [(round((n_shared + 0.5) * width, 2), str(n_shared)) for n_shared in range(DEPTH + 1)]
    axis = Axis("texts of the top 10 that stay the same", ticks)
    series = [_overlap_histogram(rows, "queries", "a")]
    if any(row["searches"] is not None for row in rows.values()):
        series.append(_overlap_histogram(rows, "searches", "b"))
    return [histograms(bins, series, axis)]


def _overlap_histogram(rows: dict[int, dict[str, Any]], column: str, tone: str) -> Histogram:
    counts = [rows[n_shared][column] or 0 if n_shared in rows else 0 for n_shared in range(DEPTH + 1)]
    return Histogram(column, tone, counts, column, number(sum(counts)))


def _changed_queries(table: pa.Table, _source: ReportSource) -> list[Quotes]:
    return [Quotes([_quote(row) for row in table.to_pylist()])]


def _quote(row: dict[str, Any]) -> Quote:
    tags = [f"{row['overlap']} of {len(row['base_ids'])} unchanged"]
    if row["searches"] is not None:
        tags.append(f"{number(row['searches'])} searches")
    return Quote(
        row["query"],
        tags,
        [*_result_texts(row, "base", "adapted", "removed"), *_result_texts(row, "adapted", "base", "added")],
    )


def _result_texts(row: dict[str, Any], system: str, other: str, role: str) -> list[Text]:
    """Titles that only one of the two lists has, one per line."""
    ids_and_titles = zip(row[f"{system}_ids"], row[f"{system}_titles"], strict=True)
    titles = list(dict.fromkeys(title for text_id, title in ids_and_titles if text_id not in row[f"{other}_ids"]))
    more = [f"and {number(len(titles) - MAX_TITLES)} more"] if len(titles) > MAX_TITLES else []
    return [replace(plain("\n".join([*titles[:MAX_TITLES], *more])), role=role)] if titles else []


SECTION = FigureSection(
    "encoder_swap",
    "Changes for live queries",
    (
        Figure(
            "swap-overlap",
            "Overlap of the old and new top 10",
            "Queries by number of texts that are in the top 10 of both encoders. This shows change, not improvement.",
            sql_source(OVERLAP_COUNTS_SQL),
            _overlaps,
            ("encoder_swap",),
            wide=True,
        ),
        Figure(
            "swap-queries",
            "Queries that change most",
            "Titles removed from and added to the top 10; frequent queries first.",
            sql_source(CHANGED_QUERIES_SQL),
            _changed_queries,
            ("encoder_swap",),
            wide=True,
        ),
    ),
)
