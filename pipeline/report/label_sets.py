"""Yield and estimated precision of a benchmark's label sets: the test labels and the training triplets."""

import pyarrow as pa

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.majority_labels import MAJORITY_LABELS_SQL
from darklode.pipeline.report.statistic import Statistic

MIN_REVIEWED = 10
"""Reviewed positives of the sample of a label set from which on their share of relevant ones is its precision."""

# Wilson score interval of a weighted share, with the effective sample size of Kish (1965).
_LABEL_SETS = Statistic(f"""
    WITH positives AS (
        SELECT 'test labels' AS labels, tenant, query_id, chunk_id, weight, source = 'human' AS is_human
        FROM qrels JOIN queries USING (tenant, query_id) WHERE split = 'test' AND relevance > 0
        UNION ALL
        SELECT 'training triplets', t.tenant, t.query_id, t.positive_id, t.weight, l.source = 'human'
        FROM triplets t LEFT JOIN training_labels l
        ON l.tenant = t.tenant AND l.query_id = t.query_id AND l.chunk_id = t.positive_id WHERE t.source = 'pooled'
    ), uncertain AS (
        SELECT 'test labels' AS labels, count(*) AS uncertain
        FROM qrels JOIN queries USING (tenant, query_id)
        WHERE split = 'test' AND relevance IS NULL AND source = 'judge'
    ), sizes AS (
        SELECT 'test labels' AS labels, count(*) FILTER (split = 'test') AS queries FROM queries
        UNION ALL SELECT 'training triplets', count(*) FILTER (split <> 'test') FROM queries
    ), quality AS (
        SELECT labels, count(*) AS positives, count(DISTINCT (tenant, query_id)) AS with_positive,
               avg(weight) AS probability, count(*) FILTER (weight IS NULL) AS unknown,
               bool_and(is_human) AS is_human
        FROM positives GROUP BY labels
    ), answers AS (
        SELECT tenant, query_id, chunk_id, relevance, s.weight AS sampling_weight
        FROM ({MAJORITY_LABELS_SQL}) JOIN review_sample s USING (tenant, query_id, chunk_id)
        WHERE relevance IS NOT NULL
    ), reviewed AS (
        SELECT labels, count(*) AS reviewed,
               sum(sampling_weight) FILTER (relevance > 0) / sum(sampling_weight) AS share,
               sum(sampling_weight) ** 2 / sum(sampling_weight ** 2) AS n
        FROM positives JOIN answers USING (tenant, query_id, chunk_id) GROUP BY labels
        HAVING count(*) >= {MIN_REVIEWED}
    ), measured AS (
        SELECT labels, reviewed, coalesce(share, 0) AS share, 1.96 ** 2 / n AS spread,
               1.96 * sqrt((coalesce(share, 0) * (1 - coalesce(share, 0)) + 1.96 ** 2 / n / 4) / n) AS half_width
        FROM reviewed
    )
    SELECT labels, queries, coalesce(with_positive, 0) AS with_positive, with_positive / queries AS share,
           coalesce(positives, 0) AS positives, uncertain,
           coalesce(m.share, CASE WHEN unknown = 0 THEN probability END) AS precision,
           (m.share + spread / 2 - half_width) / (1 + spread) AS precision_low,
           (m.share + spread / 2 + half_width) / (1 + spread) AS precision_high,
           CASE WHEN m.share IS NOT NULL THEN format('{{}} reviewed', reviewed)
                WHEN is_human THEN 'given labels'
                WHEN unknown = 0 THEN 'judge''s probabilities' END AS basis
    FROM sizes LEFT JOIN quality q USING (labels) LEFT JOIN uncertain USING (labels) LEFT JOIN measured m USING (labels)
    WHERE queries > 0 ORDER BY labels
""")
LABEL_SETS_NOTE = (
    "Precision: estimated share of relevant pairs among the positives, by people's review of this label set or, with "
    f"fewer than {MIN_REVIEWED} reviewed ones, by the judge's probabilities. Uncertain pairs are neither positives nor "
    "negatives. For other numbers of positives change `labels.test_precision` and `labels.training_precision`; "
    "for more precise ones choose a better judge."
)


def label_sets(tables: Tables) -> pa.Table:
    """Compute one row per label set: its queries, how many have a positive, and the precision of the positives.

    The precision is the weighted share of relevant pairs among the set's reviewed positives, with its 95 % interval, if
    people have reviewed at least `MIN_REVIEWED` of them in the review sample; other pairs, such as near misses, were
    not drawn at random. Otherwise it is the mean of their probabilities, which is as good as the judge's calibration,
    and 1 for given labels; null if a positive has no probability.

    Args:
        tables: `duckdb_views.all_tables` of a benchmark, possibly incomplete.
    """
    return _LABEL_SETS(tables)
