"""The stage `near_misses`: the most probable candidate of queries without a certain positive, to be reviewed first."""

from __future__ import annotations

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.schemas.review_tables import NEAR_MISSES

NEAR_MISSES_STAGE = Stage("near_misses", 1, ("queries", "qrels", "review_sample"), (NEAR_MISSES.name,))

SAMPLE_SHARE = 0.125
"""Maximum number of near misses per sampled pair: 50 beside the default sample of 400, under half an hour of review."""

# One pair per query: a second one would gain nothing if the first is relevant, and is offered after the next build if
# the first is labelled as not relevant. A text without content has the weight 0.
NEAR_MISSES_SQL = f"""
    WITH uncertain AS (
        SELECT tenant, query_id, chunk_id, weight AS probability FROM qrels
        ANTI JOIN (FROM qrels WHERE relevance > 0) USING (tenant, query_id)
        WHERE relevance IS NULL AND weight > 0
    ), best AS (
        FROM uncertain QUALIFY row_number() OVER (
            PARTITION BY tenant, query_id ORDER BY probability DESC, chunk_id
        ) = 1
    )
    SELECT tenant, query_id, chunk_id, probability,
           CAST(row_number() OVER (
               ORDER BY split = 'test' DESC, probability DESC, tenant, query_id
           ) - 1 AS INTEGER) AS position
    FROM best JOIN queries USING (tenant, query_id) ANTI JOIN review_sample USING (tenant, query_id, chunk_id)
    QUALIFY position < {SAMPLE_SHARE} * (SELECT count(*) FROM review_sample)
    ORDER BY position
"""


def near_misses(tables: Tables, output: Output) -> None:
    """Write the most probable uncertain candidate of queries without a certain positive, test queries first.

    These pairs are no sample: they were chosen by their probability, so they stand for no other pairs, and no estimate
    uses their labels. Pairs of the review sample are left out, because answering them out of turn would bias the
    estimates of an unfinished review.

    Args:
        tables: must contain `queries`, `qrels` and `review_sample`.
        output: receives `near_misses`.
    """
    rows = tables.sql(NEAR_MISSES_SQL)
    output.write(NEAR_MISSES.name, NEAR_MISSES.rows(dict(zip(rows.column_names, rows.columns, strict=True))))
    output.facts["pairs"] = rows.num_rows
