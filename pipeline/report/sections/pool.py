"""The pool: how many candidates a query has, and who found them."""

import pyarrow as pa

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Histogram, HistogramBin, histograms, stacked_bars
from darklode.pipeline.report.drawing import AxisScale, Chart, Facts, whole_step
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource

BINS = 24

SIZES = """
    WITH sizes AS (
        SELECT count(pool.chunk_id) AS n FROM queries LEFT JOIN pool USING (tenant, query_id) GROUP BY tenant, query_id
    ), placed AS (SELECT CASE WHEN n = 0 THEN -1 ELSE (n - 1) // $1 END AS bin FROM sizes)
    SELECT CASE WHEN bin < 0 THEN 0 ELSE bin * $1 + 1 END AS candidates_from,
           CASE WHEN bin < 0 THEN 0 ELSE (bin + 1) * $1 END AS candidates_to, count(*) AS queries
    FROM placed GROUP BY bin ORDER BY bin
"""


def _sizes(source: ReportSource) -> pa.Table:
    summary = statistics.pool_sizes(source.tables).to_pylist()
    return source.tables.sql(SIZES, [whole_step(max([row["max"] for row in summary], default=0) / BINS)])


def _histogram(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = table.to_pylist()
    scale = AxisScale.up_to(max(row["candidates_to"] for row in rows))
    width = max(row["candidates_to"] - row["candidates_from"] + 1 for row in rows)
    bins = [
        HistogramBin(
            scale.position_of(row["candidates_from"] - 1),
            scale.span(0, width),
            f"{number(row['candidates_from'])} to {number(row['candidates_to'])} candidates",
        )
        for row in rows
        if row["candidates_to"]
    ]
    counts = [row["queries"] for row in rows if row["candidates_to"]]
    none = sum(row["queries"] for row in rows if not row["candidates_to"])
    note = f"{number(none)} without any" if none else ""
    return [histograms(bins, [Histogram("queries", "a", counts, "queries", note)], scale.axis("candidates per query"))]


def _facts(table: pa.Table, _source: ReportSource) -> list[Facts]:
    (row,) = table.to_pylist()
    return [Facts([(name, number(row[name])) for name in ("queries", "min", "median", "mean", "max")])]


SECTION = FigureSection(
    "pool",
    "Pool",
    (
        Figure(
            "pool-sizes",
            "Candidates per query",
            "How many chunks a query has to be judged, over all queries, those without any included.",
            lambda source: statistics.pool_sizes(source.tables),
            _facts,
            ("queries", "pool"),
            wide=True,
        ),
        Figure(
            "pool-histogram",
            "Sizes of the pools",
            "Queries by number of candidates: small pools mean that the retrievers agree, or that the corpus is small.",
            _sizes,
            _histogram,
            ("queries", "pool"),
        ),
        Figure(
            "found-by",
            "Found by so many retrievers",
            "Candidates by how many retrievers ranked them within the pool's depth: what one alone found would be "
            "missing without it.",
            lambda source: statistics.pool_found_by(source.tables),
            lambda table, _: [
                stacked_bars(table, "retrievers", {"candidates": ("candidates", "a")}, axis="candidates", shares=True)
            ],
            ("pool",),
        ),
    ),
)
