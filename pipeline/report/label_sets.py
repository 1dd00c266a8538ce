"""Yield and estimated precision of a benchmark's label sets: the test labels and the training triplets."""

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.report.statistic import Statistic
from darklode.pipeline.validate.stage import is_stale

_LABEL_SETS = Statistic("""
    WITH positives AS (
        SELECT 'test labels' AS labels, tenant, query_id, chunk_id
        FROM qrels JOIN queries USING (tenant, query_id) WHERE split = 'test' AND relevance > 0
        UNION ALL
        SELECT 'training triplets', tenant, query_id, positive_id FROM triplets WHERE source = 'pooled'
    ), sizes AS (
        SELECT 'test labels' AS labels, count(*) FILTER (split = 'test') AS queries FROM queries
        UNION ALL SELECT 'training triplets', count(*) FILTER (split <> 'test') FROM queries
    ), quality AS (
        SELECT labels, count(*) AS positives, count(DISTINCT (tenant, query_id)) AS with_positive,
               avg(CASE WHEN source = 'human' THEN 1 ELSE probability END) AS precision,
               count(*) FILTER (coalesce(source, '') <> 'human' AND probability IS NULL) AS unknown
        FROM positives LEFT JOIN qrels USING (tenant, query_id, chunk_id)
        LEFT JOIN verdicts USING (tenant, query_id, chunk_id) GROUP BY labels
    ), measured AS (
        SELECT precision, precision_low, precision_high FROM validation
        WHERE $1 AND tenant IS NULL AND retriever IS NULL
    )
    SELECT labels, queries, coalesce(with_positive, 0) AS with_positive, with_positive / queries AS share,
           coalesce(positives, 0) AS positives,
           coalesce(m.precision, CASE WHEN unknown = 0 THEN q.precision END) AS precision,
           precision_low, precision_high,
           CASE WHEN m.precision IS NOT NULL THEN 'review' WHEN unknown = 0 THEN 'judge''s probabilities' END AS basis
    FROM sizes LEFT JOIN quality q USING (labels) LEFT JOIN measured m ON true
    WHERE queries > 0 ORDER BY labels
""")
"""`$1`: whether the table `validation` describes the present verdicts."""

LABEL_SETS_NOTE = (
    "Precision: share of relevant pairs among all positives of the judge, measured by `darklode review` and "
    "`validate`; without a review, the mean of the judge's probabilities for the label set's own positives. To make "
    "test labels more precise raise `judge.threshold` or choose a better judge; for more triplets lower "
    "`triplets.min_probability`."
)


def label_sets(run: Run, tables: Tables) -> pa.Table:
    """Compute one row per label set: its queries, how many have a positive, and the precision of the positives.

    The precision is that of all positives of the judge, with its 95 % interval, if people have reviewed a sample of the
    present verdicts. Otherwise it is the mean of the judge's probabilities over the set's own positives (a human label
    counts as 1), which is as good as their calibration; null if a positive has no probability.

    Args:
        run: a benchmark, possibly incomplete.
        tables: `duckdb_views.all_tables(run)`.
    """
    return _LABEL_SETS(tables, not is_stale(run))
