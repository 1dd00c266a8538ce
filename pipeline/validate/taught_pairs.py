"""Labelled pairs of a run with their texts, verdicts and people's reasons, to teach the judge."""

from __future__ import annotations

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.majority_labels import MAJORITY_LABELS_SQL
from darklode.pipeline.judge.teach.examples import TaughtPair

# Labels of reviewers who saw the judge's verdict are left out: they lean towards it.
REVIEWED_SQL = f"""
    SELECT tenant, query_id, chunk_id, relevance FROM ({MAJORITY_LABELS_SQL})
    WHERE relevance IS NOT NULL AND NOT coalesce(shown, false)
"""
REASONS_SQL = """
    SELECT tenant, query_id, chunk_id, first(rationale ORDER BY reviewer) AS reason
    FROM reviews WHERE length(trim(rationale)) > 0 GROUP BY ALL
"""
GIVEN_SQL = "SELECT tenant, query_id, chunk_id, relevance FROM human_labels"

TAUGHT_PAIRS_SQL = """
    WITH labels AS ({labels}), reasons AS ({reasons})
    SELECT l.tenant, l.query_id, l.chunk_id, q.text AS query, c.title, c.heading, c.text AS chunk,
           l.relevance, v.relevant, v.probability, coalesce(r.reason, '') AS reason
    FROM labels l JOIN queries q USING (tenant, query_id) JOIN chunks c USING (tenant, chunk_id)
    LEFT JOIN verdicts v USING (tenant, query_id, chunk_id) LEFT JOIN reasons r USING (tenant, query_id, chunk_id)
    ORDER BY l.tenant, l.query_id, l.chunk_id
"""
NO_REASONS_SQL = "SELECT tenant, query_id, chunk_id, NULL::VARCHAR AS reason FROM labels WHERE false"


def taught_pairs(tables: Tables) -> list[TaughtPair]:
    """Labelled pairs by tenant, query and chunk: those of reviewers, or else those of `judge.human_labels`.

    Args:
        tables: must contain `queries`, `chunks` and `verdicts`; labels are in `reviews` or `human_labels`.
    """
    is_reviewed = "reviews" in tables and tables.rows("reviews") > 0
    if not is_reviewed and "human_labels" not in tables:
        return []
    labels, reasons = (REVIEWED_SQL, REASONS_SQL) if is_reviewed else (GIVEN_SQL, NO_REASONS_SQL)
    rows = tables.sql(TAUGHT_PAIRS_SQL.format(labels=labels, reasons=reasons)).to_pylist()
    return [TaughtPair(**row) for row in rows]
