"""What associated queries lend one another, and the pairs that come of it all."""

import duckdb

LENT = """
    CREATE OR REPLACE TEMP TABLE lent AS
    SELECT tenant, query_id, associated_query_id AS via_query_id, kind, terms, score, date
    FROM associations SEMI JOIN wanted USING (tenant, query_id) WHERE date < CAST($before AS DATE)
"""

NEEDED = """
    CREATE OR REPLACE TEMP TABLE needed AS
    SELECT tenant, query_id FROM wanted UNION SELECT DISTINCT tenant, via_query_id FROM lent
"""

LENDERS = """
    CREATE OR REPLACE TEMP TABLE lenders AS
    WITH rich AS (
        SELECT DISTINCT tenant, query_id AS via_query_id, 'click' AS kind FROM click_one_hop
        UNION ALL SELECT tenant, query_id, 'relevance' FROM relevance_one_hop
    ), ranked AS (
        SELECT *, row_number() OVER (
            PARTITION BY tenant, query_id, kind
            ORDER BY score DESC, date, md5_number_lower(concat_ws(chr(0), $seed, query_id, via_query_id)), via_query_id
        ) AS place
        FROM lent SEMI JOIN rich USING (tenant, via_query_id, kind)
    )
    SELECT * EXCLUDE (place) FROM ranked WHERE $most = 0 OR place <= $most
"""

OWN = """
    CREATE OR REPLACE TEMP TABLE own AS
    SELECT tenant, query_id, positive_id, negative_id, CAST(NULL AS FLOAT) AS positive_score,
           CAST(NULL AS FLOAT) AS negative_score, 'click_one_hop' AS source, date
    FROM click_one_hop SEMI JOIN wanted USING (tenant, query_id)
    UNION ALL
    SELECT tenant, query_id, positive_id, negative_id, positive_score, negative_score, 'relevance_one_hop', date
    FROM relevance_one_hop SEMI JOIN wanted USING (tenant, query_id)
    ANTI JOIN click_one_hop USING (tenant, query_id, positive_id)
"""

# The same positive may be lent by many: clicks before relevance, then the first day, then the best match.
BORROWED = """
    CREATE OR REPLACE TEMP TABLE borrowed AS
    WITH evidence AS (
        SELECT tenant, query_id AS via_query_id, 'click' AS kind, positive_id, negative_id,
               CAST(NULL AS FLOAT) AS positive_score, CAST(NULL AS FLOAT) AS negative_score, date AS found
        FROM click_one_hop
        UNION ALL
        SELECT tenant, query_id, 'relevance', positive_id, negative_id, positive_score, negative_score, date
        FROM relevance_one_hop
    )
    SELECT tenant, query_id, positive_id, negative_id, positive_score, negative_score, kind || '_multi_hop' AS source,
           via_query_id, terms, greatest(date, found) AS date
    FROM lenders JOIN evidence USING (tenant, via_query_id, kind)
    ANTI JOIN own AS mine USING (tenant, query_id, positive_id)
    ANTI JOIN own AS against
      ON against.tenant = lenders.tenant AND against.query_id = lenders.query_id
     AND against.negative_id = evidence.positive_id
    QUALIFY row_number() OVER (
        PARTITION BY tenant, query_id, positive_id
        ORDER BY kind, greatest(date, found), score DESC, via_query_id
    ) = 1
"""

FRESH = """
    CREATE OR REPLACE TEMP TABLE fresh AS
    WITH positives AS (
        SELECT tenant, query_id, positive_id FROM own UNION ALL SELECT tenant, query_id, positive_id FROM borrowed
    )
    SELECT b.tenant, b.query_id, b.positive_id,
           CASE WHEN p.positive_id IS NULL THEN b.negative_id END AS negative_id, b.positive_score,
           CASE WHEN p.positive_id IS NULL THEN b.negative_score END AS negative_score,
           b.source, b.via_query_id, b.terms, b.date
    FROM borrowed b
    LEFT JOIN positives p ON p.tenant = b.tenant AND p.query_id = b.query_id AND p.positive_id = b.negative_id
    UNION ALL
    SELECT tenant, query_id, positive_id, negative_id, positive_score, negative_score, source,
           CAST(NULL AS VARCHAR), CAST(NULL AS VARCHAR[]), date
    FROM own
"""


def needed(connection: duckdb.DuckDBPyConnection, *, before: str) -> None:
    """Make the table `needed`: the queries in the table `wanted`, and those associated with them."""
    connection.execute(LENT, {"before": before})
    connection.execute(NEEDED)


def multi_hop(connection: duckdb.DuckDBPyConnection, *, most: int, seed: int) -> None:
    """Make the table `fresh`: all pairs of the queries in `wanted`, in the columns of `mined_pairs`.

    A query's own evidence goes before what it borrows: its own positive never arrives as its negative, nor its own
    negative as its positive.

    Args:
        connection: after `needed` and `one_hop.one_hop`.
        most: lenders of a query and kind, best match first; 0: all.
        seed: breaks ties between lenders.

    Source: ScalingNote, 4.1: by ClickA(q1←q2), q2's click data serve q1; by RelA, relevance data serve both ways.
    """
    connection.execute(LENDERS, {"most": most, "seed": seed})
    for statement in (OWN, BORROWED, FRESH):
        connection.execute(statement)
