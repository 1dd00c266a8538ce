"""Report section of the candidate pool."""

import pyarrow as pa

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Histogram, HistogramBin, histograms, stacked_bars
from darklode.pipeline.report.drawing import AxisScale, Chart, Facts, integer_step
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource

MAX_BINS = 24

POOL_SIZE_BINS_SQL = """
    WITH sizes AS (
        SELECT count(pool.chunk_id) AS n FROM queries LEFT JOIN pool USING (tenant, query_id) GROUP BY tenant, query_id
    ), binned_sizes AS (SELECT CASE WHEN n = 0 THEN -1 ELSE (n - 1) // $1 END AS bin FROM sizes)
    SELECT CASE WHEN bin < 0 THEN 0 ELSE bin * $1 + 1 END AS candidates_from,
           CASE WHEN bin < 0 THEN 0 ELSE (bin + 1) * $1 END AS candidates_to, count(*) AS queries
    FROM binned_sizes GROUP BY bin ORDER BY bin
"""


def _sizes(source: ReportSource) -> pa.Table:
    summary = statistics.pool_sizes(source.tables).to_pylist()
    return source.tables.sql(
        POOL_SIZE_BINS_SQL, [integer_step(max([row["max"] for row in summary], default=0) / MAX_BINS)]
    )


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
            "Number of chunks to judge per query, including queries without any.",
            lambda source: statistics.pool_sizes(source.tables),
            _facts,
            ("queries", "pool"),
            wide=True,
        ),
        Figure(
            "pool-histogram",
            "Pool sizes",
            "Queries by number of candidates. Pools are small if the retrievers agree or the corpus is small.",
            _sizes,
            _histogram,
            ("queries", "pool"),
        ),
        Figure(
            "found-by",
            "Candidates by number of retrievers",
            "Number of retrievers that ranked a candidate within the pool's depth. Candidates of a single retriever "
            "would be missing without it.",
            lambda source: statistics.pool_found_by(source.tables),
            lambda table, _: [
                stacked_bars(table, "retrievers", {"candidates": ("candidates", "a")}, axis="candidates", shares=True)
            ],
            ("pool",),
        ),
    ),
)
