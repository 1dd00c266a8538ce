"""Which held-out queries share a positive with training, so that a model may have memorized it; and what else the
splits share.
"""

from dataclasses import replace

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.mine.session_split import SessionSplit
from darklode.pipeline.triplets.split_leakage import measure_leakage
from darklode.schemas.tables import TABLES

HELD_OUT = Stage("held_out", 5, ("triplets",), ("held_out", "split_leakage"))
HELD_OUT_OF_LOG = replace(HELD_OUT.reading("mined_test", "query_clusters"), consults=("impressions", "log_days"))
"""The stage in a mined log, whose sessions and users are compared, too."""

# Chunks with equal text are the same positive. Materialized first: in one join, queries could be joined with all
# chunks.
JUDGED_POSITIVES_SQL = """
    WITH relevant AS MATERIALIZED (
        SELECT tenant, query_id, chunk_id, split FROM qrels JOIN queries USING (tenant, query_id)
        WHERE relevance > 0 AND split = 'test'
        UNION ALL SELECT tenant, query_id, chunk_id, split FROM training_labels JOIN queries USING (tenant, query_id)
        WHERE relevance > 0 AND split = 'validation'
    ), positives AS (
        SELECT tenant, query_id, split, sha256(text) AS positive FROM relevant JOIN chunks USING (tenant, chunk_id)
    ), training_positives AS (
        SELECT DISTINCT t.tenant, sha256(c.text) AS positive
        FROM triplets t JOIN chunks c ON c.tenant = t.tenant AND c.chunk_id = t.positive_id WHERE t.split = 'train'
    )
"""
MINED_POSITIVES_SQL = """
    WITH positives AS (
        SELECT tenant, query_id, split, positive_id AS positive FROM triplets WHERE split <> 'train'
        UNION ALL SELECT tenant, query_id, 'test', doc_id FROM mined_test
    ), training_positives AS (SELECT DISTINCT tenant, positive_id AS positive FROM triplets WHERE split = 'train')
"""
# Appended to one of the two statements above, whose CTEs it reads.
SHARES_POSITIVE_SQL = """
    SELECT tenant, query_id, split, bool_or(t.positive IS NOT NULL) AS shares_positive
    FROM positives p LEFT JOIN training_positives t USING (tenant, positive)
    GROUP BY tenant, query_id, split ORDER BY tenant, query_id, split
"""


def held_out(tables: Tables, output: Output, *, sessions: SessionSplit | None = None) -> None:
    """Write each validation and test query with a positive, whether it shares one with training, and what training and
    validation share.

    Args:
        tables: must contain `triplets`; with `mined_test` of a log's test period, or with `queries`, `qrels`,
            `training_labels` and `chunks`.
        output: receives `held_out` and `split_leakage`.
        sessions: the assignment of a log's sessions to splits; None: sessions are not assigned.
    """
    rows = tables.sql((MINED_POSITIVES_SQL if "mined_test" in tables else JUDGED_POSITIVES_SQL) + SHARES_POSITIVE_SQL)
    output.write("held_out", rows.cast(TABLES["held_out"].schema))
    output.write("split_leakage", measure_leakage(tables, sessions))
    queries = rows.num_rows
    output.count(FunnelStep("held_out", "held-out queries with a positive", queries, "queries", queries))
