"""What associated queries lend one another, and the pairs that come of it all."""

import duckdb

from darklode.pipeline.base.relations import Relation, drop, keep
from darklode.pipeline.mine.one_hop import OneHopPairs

LOANS = """
    SELECT tenant, query_id, associated_query_id AS via_query_id, kind, terms, score, date
    FROM associations SEMI JOIN {borrowers} USING (tenant, query_id) WHERE date < CAST($before AS DATE)
"""

WITH_LENDERS = "SELECT tenant, query_id FROM {borrowers} UNION SELECT DISTINCT tenant, via_query_id FROM {loans}"

LENDERS = """
    WITH rich AS (
        SELECT DISTINCT tenant, query_id AS via_query_id, 'click' AS kind FROM {click}
        UNION ALL SELECT tenant, query_id, 'relevance' FROM {relevance}
    ), ranked AS (
        SELECT *, row_number() OVER (
            PARTITION BY tenant, query_id, kind
            ORDER BY score DESC, date, md5_number_lower(concat_ws(chr(0), $seed, query_id, via_query_id)), via_query_id
        ) AS place
        FROM {loans} SEMI JOIN rich USING (tenant, via_query_id, kind)
    )
    SELECT * EXCLUDE (place) FROM ranked WHERE $most = 0 OR place <= $most
"""

OWN = """
    SELECT tenant, query_id, positive_id, negative_id, CAST(NULL AS FLOAT) AS positive_score,
           CAST(NULL AS FLOAT) AS negative_score, 'click_one_hop' AS source, date
    FROM {click} SEMI JOIN {borrowers} USING (tenant, query_id)
    UNION ALL
    SELECT tenant, query_id, positive_id, negative_id, positive_score, negative_score, 'relevance_one_hop', date
    FROM {relevance} SEMI JOIN {borrowers} USING (tenant, query_id)
    ANTI JOIN {click} USING (tenant, query_id, positive_id)
"""

# The same positive may be lent by many: clicks before relevance, then the first day, then the best match.
BORROWED = """
    WITH evidence AS (
        SELECT tenant, query_id AS via_query_id, 'click' AS kind, positive_id, negative_id,
               CAST(NULL AS FLOAT) AS positive_score, CAST(NULL AS FLOAT) AS negative_score, date AS found
        FROM {click}
        UNION ALL
        SELECT tenant, query_id, 'relevance', positive_id, negative_id, positive_score, negative_score, date
        FROM {relevance}
    )
    SELECT tenant, query_id, positive_id, negative_id, positive_score, negative_score, kind || '_multi_hop' AS source,
           via_query_id, terms, greatest(date, found) AS date
    FROM {lenders} AS lenders JOIN evidence USING (tenant, via_query_id, kind)
    ANTI JOIN {own} AS mine USING (tenant, query_id, positive_id)
    ANTI JOIN {own} AS against
      ON against.tenant = lenders.tenant AND against.query_id = lenders.query_id
     AND against.negative_id = evidence.positive_id
    QUALIFY row_number() OVER (
        PARTITION BY tenant, query_id, positive_id
        ORDER BY kind, greatest(date, found), score DESC, via_query_id
    ) = 1
"""

ALL_PAIRS = """
    WITH positives AS (
        SELECT tenant, query_id, positive_id FROM {own} UNION ALL SELECT tenant, query_id, positive_id FROM {borrowed}
    )
    SELECT b.tenant, b.query_id, b.positive_id,
           CASE WHEN p.positive_id IS NULL THEN b.negative_id END AS negative_id, b.positive_score,
           CASE WHEN p.positive_id IS NULL THEN b.negative_score END AS negative_score,
           b.source, b.via_query_id, b.terms, b.date
    FROM {borrowed} b
    LEFT JOIN positives p ON p.tenant = b.tenant AND p.query_id = b.query_id AND p.positive_id = b.negative_id
    UNION ALL
    SELECT tenant, query_id, positive_id, negative_id, positive_score, negative_score, source,
           CAST(NULL AS VARCHAR), CAST(NULL AS VARCHAR[]), date
    FROM {own}
"""


def loans_to(connection: duckdb.DuckDBPyConnection, borrowers: Relation, *, before: str) -> Relation:
    """The associations by which queries borrow: tenant, query_id, via_query_id, kind, terms, score, date.

    Args:
        connection: with the table associations.
        borrowers: tenant and query_id.
        before: ISO date; associations of that day and later ones do not count.
    """
    return keep(connection, LOANS, {"before": before}, borrowers=borrowers)


def with_lenders(connection: duckdb.DuckDBPyConnection, borrowers: Relation, loans: Relation) -> Relation:
    """The borrowers and those who lend to them: tenant and query_id."""
    return keep(connection, WITH_LENDERS, borrowers=borrowers, loans=loans)


def multi_hop(
    connection: duckdb.DuckDBPyConnection,
    borrowers: Relation,
    loans: Relation,
    one_hop: OneHopPairs,
    *,
    most: int,
    seed: int,
) -> Relation:
    """All pairs of the borrowers, their own and the borrowed ones, in the columns of `mined_pairs`.

    A query's own evidence goes before what it borrows: its own positive never arrives as its negative, nor its own
    negative as its positive.

    Args:
        connection: holds the relations.
        borrowers: tenant and query_id.
        loans: of `loans_to`.
        one_hop: the pairs of all `with_lenders`.
        most: lenders of a query and kind, best match first; 0: all.
        seed: breaks ties between lenders.

    Source: ScalingNote, 4.1: by ClickA(q1←q2), q2's click data serve q1; by RelA, relevance data serve both ways.
    """
    evidence = one_hop._asdict()
    lenders = keep(connection, LENDERS, {"most": most, "seed": seed}, loans=loans, **evidence)
    own = keep(connection, OWN, borrowers=borrowers, **evidence)
    borrowed = keep(connection, BORROWED, lenders=lenders, own=own, **evidence)
    drop(connection, lenders)
    pairs = keep(connection, ALL_PAIRS, own=own, borrowed=borrowed)
    drop(connection, own, borrowed)
    return pairs
