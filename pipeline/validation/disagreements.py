"""The pairs on which judge and people differ."""

from __future__ import annotations

import pyarrow as pa

from pipeline.artifacts import Tables
from pipeline.validation.labels import LABELS
from schemas.review_tables import DISAGREEMENTS

DIFFERENT = f"""
    WITH labels AS ({LABELS}), said AS (
        SELECT tenant, query_id, chunk_id, list(reviewer ORDER BY reviewer) AS reviewers,
               list(coalesce(rationale, '') ORDER BY reviewer) AS reasons
        FROM reviews WHERE relevance IS NOT NULL GROUP BY tenant, query_id, chunk_id
    ), strata AS (SELECT DISTINCT stratum, verdict FROM review_strata),
    differing AS (
        SELECT labels.*, strata.verdict, sample.weight
        FROM labels JOIN review_sample sample USING (tenant, query_id, chunk_id) JOIN strata USING (stratum)
        WHERE relevance IS NOT NULL AND (relevance > 0) <> (strata.verdict = 'relevant')
    )
    SELECT tenant, query_id, chunk_id,
           CASE WHEN d.relevance > 0 THEN 'missed positive' ELSE 'false positive' END AS kind,
           d.verdict, v.probability, v.rationale, d.relevance, said.reviewers, said.reasons, d.weight
    FROM differing d JOIN said USING (tenant, query_id, chunk_id)
    LEFT JOIN verdicts v USING (tenant, query_id, chunk_id)
    ORDER BY d.weight DESC, tenant, query_id, chunk_id
"""


def disagreements(tables: Tables) -> pa.Table:
    """Rows of `disagreements`, those that stand for most pairs first.

    Args:
        tables: holds `reviews`, `review_sample`, `review_strata` and `verdicts`.
    """
    found = tables.sql(DIFFERENT)
    return DISAGREEMENTS.rows(dict(zip(found.column_names, found.columns, strict=True)))
