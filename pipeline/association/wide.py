"""Relevance associations of queries whose Top4 differ: only where both score more than 4 terms above th_rel.

They need importances that order the same terms differently in two queries, so a planner with one weight per term gives
none. They are few, found without looking at all pairs: by the two rarest terms of a Top4.
"""

import duckdb

from schemas.mining import AssociateSettings

# Two such Top4 differ in a term each, and each query has the other's term below its own: an order that is turned round.
_STRONG = """
    CREATE TABLE wide_terms AS
    WITH strong AS MATERIALIZED (
        SELECT q, t, place, importance FROM placed_terms WHERE importance > $th_rel::FLOAT
        AND q IN (SELECT q FROM placed_terms WHERE place = 5 AND importance > $th_rel::FLOAT)
    ), orders AS MATERIALIZED (
        SELECT q, x.t AS above, y.t AS below FROM strong AS x JOIN strong AS y USING (q)
        WHERE x.place <= 4 AND y.place > 4
    ), turned AS (SELECT x.q FROM orders AS x SEMI JOIN orders AS y ON x.above = y.below AND x.below = y.above)
    SELECT q, t, importance FROM strong WHERE q IN (SELECT q FROM turned)
"""

_WIDE = """
    CREATE TABLE wide AS
    SELECT q, date, key, strong
    FROM (SELECT q, list(t) AS strong FROM wide_terms GROUP BY q) JOIN relevance_borrowers USING (q)
"""

_RAREST = """
    CREATE TABLE rarest AS
    WITH frequencies AS (SELECT t, count(*) AS n FROM wide_terms GROUP BY t),
    members AS (SELECT key, unnest(terms) AS t FROM sets WHERE key IN (SELECT key FROM wide)),
    pairs AS (SELECT key, list(t ORDER BY n, t) AS t FROM members JOIN frequencies USING (t) GROUP BY key)
    SELECT key, least(t[1], t[2]) AS a, greatest(t[1], t[2]) AS b FROM pairs
"""

# A row: all terms of the foreign set `key` are above th_rel in q, whose own set is `own`.
_COVERS = """
    CREATE TABLE covers AS
    SELECT rarest.key, wide.q, wide.date, wide.key AS own
    FROM wide_terms AS x JOIN wide_terms AS y USING (q) JOIN rarest ON x.t = rarest.a AND y.t = rarest.b
    JOIN wide ON wide.q = x.q JOIN sets ON sets.key = rarest.key
    WHERE wide.key <> rarest.key AND list_has_all(wide.strong, sets.terms)
"""

_MUTUAL = """
    CREATE TABLE mutual AS
    WITH both_ways AS (
        SELECT x.key, x.q, x.date, x.own FROM covers AS x
        SEMI JOIN covers AS y ON x.key = y.own AND x.own = y.key
    ), members AS (SELECT b.*, unnest(terms) AS t FROM both_ways AS b JOIN sets USING (key))
    SELECT key, q, date, own, min(importance) AS floor
    FROM members JOIN wide_terms USING (q, t) GROUP BY key, q, date, own
"""

_PAIRS = """
    CREATE TABLE wide_pairs AS
    SELECT x.q, y.q AS lender, x.date, y.date AS lender_date, least(x.floor, y.floor) AS score
    FROM mutual AS x JOIN mutual AS y ON x.key = y.own AND x.own = y.key
"""


def find_wide(connection: duckdb.DuckDBPyConnection, settings: AssociateSettings) -> None:
    """Make `wide_pairs` (q, lender, date, lender_date, score), both directions, from what `candidates.find` made."""
    connection.execute(_STRONG, {"th_rel": settings.th_rel})
    for statement in (_WIDE, _RAREST, _COVERS, _MUTUAL, _PAIRS):
        connection.execute(statement)
