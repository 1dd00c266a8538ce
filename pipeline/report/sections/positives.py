"""Report section of the positives per query and split."""

import pyarrow as pa

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Histogram, histograms, integer_bins
from darklode.pipeline.report.drawing import Chart
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.grades import GRADES_NOTE, label_grades
from darklode.pipeline.report.source import ReportSource

MAX_POSITIVES = 30
"""Queries with more share one bin."""

POSITIVES_PER_QUERY_SQL = f"""
    WITH positive_counts AS (
        SELECT split, count(*) FILTER (relevance > 0) AS n
        FROM queries LEFT JOIN qrels USING (tenant, query_id) GROUP BY tenant, query_id, split
    )
    SELECT CAST(least(n, {MAX_POSITIVES + 1}) AS BIGINT) AS positives, count(*) AS queries,
           count(*) FILTER (split = 'train') AS train, count(*) FILTER (split = 'validation') AS validation,
           count(*) FILTER (split = 'test') AS test
    FROM positive_counts GROUP BY ALL ORDER BY positives
"""

QUERIES_WITHOUT_POSITIVE_SQL = """
    SELECT tenant, left(text, 300) AS query, split, count(pool.chunk_id) AS candidates,
           count(q.chunk_id) AS possible
    FROM queries LEFT JOIN pool USING (tenant, query_id)
    LEFT JOIN (FROM qrels WHERE relevance IS NULL) q USING (tenant, query_id, chunk_id)
    ANTI JOIN (FROM qrels WHERE relevance > 0) AS positives USING (tenant, query_id)
    GROUP BY tenant, query_id, text, split ORDER BY possible DESC, candidates DESC, tenant, query_id
"""


def _positives(table: pa.Table, _source: ReportSource) -> list[Chart]:
    values, queries = table["positives"].to_pylist(), table["queries"].to_pylist()
    bins, axis = integer_bins(values, MAX_POSITIVES, "positives")
    none = sum(count for value, count in zip(values, queries, strict=True) if value == 0)
    return [histograms(bins, [Histogram("queries", "a", queries, "queries", f"{number(none)} without any")], axis)]


SECTION = FigureSection(
    "positives",
    "Positives",
    (
        Figure(
            "positives-per-query",
            "Positives per query",
            "Queries by number of relevant candidates. At 0 no positive was found: the corpus has no answer, the "
            "retrievers did not find it, or the judge is not sure enough of it (labels.test_precision). The last bin "
            "contains all above 30.",
            sql_source(POSITIVES_PER_QUERY_SQL),
            _positives,
            ("queries", "qrels"),
        ),
        Figure(
            "queries-without-positives",
            "Queries without a positive",
            "No certain positive was found: the documents lack an answer, the retrievers missed it, or the judge is "
            "not sure. possible: candidates that the judge calls relevant, but not surely enough; review them first.",
            sql_source(QUERIES_WITHOUT_POSITIVE_SQL),
            needs=("queries", "pool", "qrels"),
            max_rows=10,
        ),
        Figure(
            "labels",
            "Labels by split",
            "mean, median and deviation (standard deviation) are positives per query, over queries with at least one.",
            lambda source: statistics.labels(source.tables),
            needs=("queries", "qrels"),
            wide=True,
        ),
        Figure(
            "grades",
            "Labels by grade",
            GRADES_NOTE,
            lambda source: label_grades(source.tables),
            needs=("queries", "qrels"),
        ),
    ),
    of_labels=True,
)
