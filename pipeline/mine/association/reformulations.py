"""Session associations: consecutive queries of a session, which often have the same intent in other words.

Users reformulate a query until they find what they need (Huang and Efthimiadis, 2009), or turn to something else. Two
consecutive queries are associated if they share a term that is important in both, or a document was clicked for both.
"""

from collections.abc import Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.schemas.mined_tables import ASSOCIATIONS

# Pairs of which a reformulation is of one of the days, with all of their reformulations: the first one dates a pair.
# Where sessions are assigned to splits, only reformulations of sessions of the two queries' own split count.
_SESSION_ASSOCIATIONS_SQL = """
    WITH pairs AS MATERIALIZED (
        SELECT tenant, query_id, next_query_id AS associated_query_id, date, session_split, shares_click
        FROM reformulations
        UNION ALL SELECT tenant, next_query_id, query_id, date, session_split, shares_click FROM reformulations
    ), new_pairs AS (
        SELECT DISTINCT tenant, query_id, associated_query_id FROM pairs WHERE list_contains($days, date)
    ), splits AS (
        SELECT tenant, query_id, split FROM query_clusters
    ), counted AS (
        SELECT p.* FROM pairs p SEMI JOIN new_pairs USING (tenant, query_id, associated_query_id)
        JOIN splits q USING (tenant, query_id)
        JOIN splits l ON l.tenant = p.tenant AND l.query_id = p.associated_query_id
        WHERE p.session_split IS NULL OR (p.session_split = q.split AND p.session_split = l.split)
    ), shared_terms AS (
        SELECT tenant, query_id, associated_query_id,
               list(x.term ORDER BY x.importance DESC, x.term) AS terms, max(least(x.importance, y.importance)) AS score
        FROM (SELECT DISTINCT tenant, query_id, associated_query_id FROM counted) c
        JOIN query_terms x USING (tenant, query_id)
        JOIN query_terms y ON y.tenant = c.tenant AND y.query_id = c.associated_query_id AND y.term = x.term
        WHERE least(x.importance, y.importance) > $th_rel::FLOAT
        GROUP BY tenant, c.query_id, associated_query_id
    )
    SELECT tenant, query_id, associated_query_id, 'session' AS kind, coalesce(any_value(terms), []) AS terms,
           coalesce(any_value(score), 0)::FLOAT AS score, min(date) AS date
    FROM counted LEFT JOIN shared_terms USING (tenant, query_id, associated_query_id)
    WHERE shares_click OR terms IS NOT NULL
    GROUP BY tenant, query_id, associated_query_id
    HAVING list_contains($days, min(date)) ORDER BY date, tenant, query_id, associated_query_id
"""


def session_associations(tables: Tables, days: Sequence[date], th_rel: float) -> dict[date, list[pa.Table]]:
    """Find the pairs of queries of which the first reformulation that associates them is of one of the days.

    Args:
        tables: must contain `reformulations`, `query_clusters` and `query_terms`.
        days: the days.
        th_rel: a common term must be more important than this in both queries.

    Returns:
        By day, rows of `associations`, ordered by tenant, query and lender.
    """
    parameters = {"days": list(days), "th_rel": th_rel}
    with tables.connect(_SESSION_ASSOCIATIONS_SQL) as connection:
        rows = connection.sql(_SESSION_ASSOCIATIONS_SQL, params=parameters).to_arrow_table()
    associations = rows.select(ASSOCIATIONS.schema.names).cast(ASSOCIATIONS.schema)
    return {
        day: [associations.filter(pc.equal(associations["date"], day))]
        for day in pc.unique(associations["date"]).to_pylist()
    }
