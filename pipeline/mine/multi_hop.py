"""Multi-hop pairs: a query's own evidence merged with that of its associated queries (lenders)."""

from typing import Literal

import duckdb

from darklode.pipeline.base.relations import Relation, drop, materialize
from darklode.pipeline.mine.one_hop import OneHop

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

# Of several lenders of one positive, the earliest day counts, then the best match.
FOUND = """
    WITH evidence AS (
        SELECT tenant, query_id, 'click' AS kind, positive_id, negative_id, CAST(NULL AS FLOAT) AS positive_score,
               CAST(NULL AS FLOAT) AS negative_score, date
        FROM {click}
        UNION ALL
        SELECT tenant, query_id, 'relevance', positive_id, negative_id, positive_score, negative_score, date
        FROM {relevance}
    )
    SELECT * EXCLUDE (kind, date), kind || '_one_hop' AS source, CAST(NULL AS VARCHAR) AS via_query_id,
           CAST(NULL AS VARCHAR[]) AS terms, date
    FROM evidence SEMI JOIN {borrowers} USING (tenant, query_id)
    UNION ALL
    SELECT tenant, l.query_id, positive_id, negative_id, positive_score, negative_score, kind || '_multi_hop',
           via_query_id, terms, greatest(l.date, e.date)
    FROM {lenders} l
    JOIN (SELECT * RENAME (query_id AS via_query_id) FROM evidence) e USING (tenant, via_query_id, kind)
    QUALIFY row_number() OVER (
        PARTITION BY tenant, l.query_id, positive_id, kind ORDER BY greatest(l.date, e.date), score DESC, via_query_id
    ) = 1
"""

STRONGEST = """
    FROM {found} QUALIFY row_number() OVER (
        PARTITION BY tenant, query_id, positive_id
        ORDER BY list_position(['click_one_hop', 'relevance_one_hop', 'click_multi_hop', 'relevance_multi_hop'], source)
    ) = 1
"""

# A clicked document is never a negative, even if it has too few clicks for a positive.
AGAINST = """
    SELECT tenant, query_id, positive_id AS doc_id FROM {found}
    UNION SELECT tenant, query_id, doc_id FROM {opened} SEMI JOIN {borrowers} USING (tenant, query_id)
"""

CONTRADICTED = """
    SELECT p.tenant, p.query_id, p.positive_id, p.source, coalesce(p.via_query_id, p.query_id) AS from_id
    FROM {merged} p
    SEMI JOIN {against} a ON a.tenant = p.tenant AND a.query_id = p.query_id AND a.doc_id = p.negative_id
"""

PAIRS = """
    SELECT p.* REPLACE (
        CASE WHEN c.source IS NULL THEN p.negative_id ELSE o.negative_id END AS negative_id,
        CASE WHEN c.source IS NULL THEN p.negative_score ELSE o.negative_score END AS negative_score
    )
    FROM {merged} p
    LEFT JOIN {contradicted} c USING (tenant, query_id, positive_id, source)
    LEFT JOIN {others} o USING (tenant, query_id, positive_id, source)
"""


def find_loans(connection: duckdb.DuckDBPyConnection, borrowers: Relation, *, before: str) -> Relation:
    """Associations by which queries borrow: tenant, query_id, via_query_id, kind, terms, score, date.

    Args:
        connection: with the table associations.
        borrowers: tenant and query_id.
        before: ISO date; associations of that day and later are ignored.
    """
    return materialize(connection, LOANS, {"before": before}, borrowers=borrowers)


def with_lenders(connection: duckdb.DuckDBPyConnection, borrowers: Relation, loans: Relation) -> Relation:
    """The borrowers and their lenders: tenant and query_id."""
    return materialize(connection, WITH_LENDERS, borrowers=borrowers, loans=loans)


def multi_hop(
    connection: duckdb.DuckDBPyConnection,
    borrowers: Relation,
    loans: Relation,
    hop: OneHop,
    *,
    max_associations: int,
    merge: Literal["strongest", "all"],
) -> Relation:
    """All pairs of the borrowers, own and borrowed, in the columns of `mined_pairs`.

    A positive wins over a negative, whatever their sources: a document that is a positive of a query, or was clicked
    for it, is never a negative of its pairs. Its replacement is drawn from the query whose evidence made the pair. A
    borrowed positive that the borrower's users skipped stays a positive.

    Args:
        connection: with the tables that `hop` reads; has the relations.
        borrowers: tenant and query_id.
        loans: result of `find_loans`.
        hop: makes the one-hop pairs of borrowers and lenders.
        max_associations: maximum lenders per query and kind, best match first; 0: all.
        merge: `all`: one row per query, positive and source. `strongest`: one row per query and positive, from the
            first of own clicks, own relevance, borrowed clicks, borrowed relevance.

    Source: ScalingNote, 4.1: ClickA(q1←q2) lends q2's click data to q1; RelA lends relevance data both ways; all four
    sources are merged.
    """
    queries = with_lenders(connection, borrowers, loans)
    one_hop = hop.pairs(connection, queries)
    evidence = {"click": one_hop.click, "relevance": one_hop.relevance}
    lenders = materialize(connection, LENDERS, {"most": max_associations, "seed": hop.seed}, loans=loans, **evidence)
    all_sources = materialize(connection, FOUND, lenders=lenders, borrowers=borrowers, **evidence)
    against = materialize(connection, AGAINST, found=all_sources, opened=one_hop.opened, borrowers=borrowers)
    merged = all_sources if merge == "all" else materialize(connection, STRONGEST, found=all_sources)
    contradicted = materialize(connection, CONTRADICTED, merged=merged, against=against)
    redrawn = hop.redraw_negatives(connection, one_hop, contradicted, against)
    pairs = materialize(connection, PAIRS, merged=merged, contradicted=contradicted, others=redrawn)
    drop(connection, lenders, against, contradicted, redrawn, *one_hop, *{all_sources, merged})
    return pairs
