"""Multi-hop pairs: a query's own evidence merged with that of its associated queries (ScalingNote, 4.1).

A query *borrows* evidence from its associated queries, its *lenders*; a *loan* is one association by which it borrows.
"""

from dataclasses import dataclass

import duckdb

from darklode.pipeline.base.relations import Relation, drop, materialize
from darklode.pipeline.mine.one_hop import OneHop
from darklode.schemas.mining import Merge

LOANS_SQL = """
    SELECT tenant, query_id, associated_query_id AS via_query_id, kind, terms, score, date
    FROM associations SEMI JOIN {borrowers} USING (tenant, query_id) WHERE date < CAST($before AS DATE)
"""

# Evidence of one split's sessions is not lent to a query of the other split.
LOANS_WITHIN_SPLIT_SQL = f"""
    SELECT loans.* FROM ({LOANS_SQL}) loans JOIN query_clusters borrower USING (tenant, query_id)
    JOIN query_clusters lender ON lender.tenant = loans.tenant AND lender.query_id = loans.via_query_id
    WHERE borrower.split = lender.split
"""

BORROWERS_AND_LENDERS_SQL = (
    "SELECT tenant, query_id FROM {borrowers} UNION SELECT DISTINCT tenant, via_query_id FROM {loans}"
)

# Only lenders with pairs count towards the limit. The hash breaks ties at random, but in the same way on every machine.
TOP_LENDERS_SQL = """
    WITH lenders_with_pairs AS (
        SELECT DISTINCT tenant, query_id AS via_query_id, unnest(['click', 'session']) AS kind FROM {click_pairs}
        UNION ALL SELECT tenant, query_id, 'relevance' FROM {relevance_pairs}
    ), ranked AS (
        SELECT *, row_number() OVER (
            PARTITION BY tenant, query_id, kind
            ORDER BY score DESC, date, md5_number_lower(concat_ws(chr(0), $seed, query_id, via_query_id)), via_query_id
        ) AS lender_rank
        FROM {loans} SEMI JOIN lenders_with_pairs USING (tenant, via_query_id, kind)
    )
    SELECT * EXCLUDE (lender_rank) FROM ranked WHERE $max_lenders = 0 OR lender_rank <= $max_lenders
"""

# Of several lenders of one positive, the earliest day counts, then the best match. A lender of two kinds is one lender.
# With $guarded, a clicked positive is lent from the day on which the borrower's results also had it in their upper
# half, or a second query lends it; `date` is null if neither happened.
PAIRS_OF_ALL_SOURCES_SQL = """
    WITH evidence AS (
        SELECT tenant, query_id, 'click' AS kind, positive_id, negative_id, CAST(NULL AS FLOAT) AS positive_score,
               CAST(NULL AS FLOAT) AS negative_score, date
        FROM {click_pairs}
        UNION ALL
        SELECT tenant, query_id, 'relevance', positive_id, negative_id, positive_score, negative_score, date
        FROM {relevance_pairs}
    ), offers AS (
        SELECT tenant, l.query_id, e.kind, positive_id, negative_id, positive_score, negative_score, via_query_id,
               terms, score, greatest(l.date, e.date) AS date
        FROM (SELECT * REPLACE (replace(kind, 'session', 'click') AS kind) FROM {lenders}) l
        JOIN (SELECT * RENAME (query_id AS via_query_id) FROM evidence) e USING (tenant, via_query_id, kind)
        QUALIFY row_number() OVER (
            PARTITION BY tenant, l.query_id, positive_id, kind, via_query_id
            ORDER BY greatest(l.date, e.date), score DESC
        ) = 1
    ), first_offers AS (
        SELECT *, lead(date) OVER of_positive AS second_date FROM offers
        WINDOW of_positive AS (
            PARTITION BY tenant, query_id, positive_id, kind ORDER BY date, score DESC, via_query_id
        )
        QUALIFY row_number() OVER of_positive = 1
    )
    SELECT * EXCLUDE (kind, date), kind || '_one_hop' AS source, CAST(NULL AS VARCHAR) AS via_query_id,
           CAST(NULL AS VARCHAR[]) AS terms, date
    FROM evidence SEMI JOIN {borrowers} USING (tenant, query_id)
    UNION ALL
    SELECT o.tenant, o.query_id, positive_id, negative_id, positive_score, negative_score, kind || '_multi_hop',
           via_query_id, terms,
           CASE WHEN NOT $guarded OR kind = 'relevance' THEN date
                WHEN shown_high_on IS NULL THEN second_date
                ELSE least(greatest(date, shown_high_on), second_date) END
    FROM first_offers o LEFT JOIN {high_documents} h
    ON h.tenant = o.tenant AND h.query_id = o.query_id AND h.doc_id = o.positive_id
"""

LENT_PAIRS_SQL = "FROM {all_sources} WHERE date IS NOT NULL"

# In this order: own evidence before borrowed evidence, clicks before the ranker.
STRONGEST_PAIRS_SQL = """
    FROM {pairs} QUALIFY row_number() OVER (
        PARTITION BY tenant, query_id, positive_id
        ORDER BY list_position(['click_one_hop', 'relevance_one_hop', 'click_multi_hop', 'relevance_multi_hop'], source)
    ) = 1
"""

# A clicked document is never a negative, even if it has too few clicks for a positive; nor is a document that another
# query would lend, even if the guard keeps it from being a positive.
EXCLUDED_DOCUMENTS_SQL = """
    SELECT tenant, query_id, positive_id AS doc_id FROM {pairs}
    UNION SELECT tenant, query_id, doc_id FROM {clicked_documents} SEMI JOIN {borrowers} USING (tenant, query_id)
"""

# Pairs whose negative is a positive or a clicked document of the same query.
CONTRADICTED_PAIRS_SQL = """
    SELECT p.tenant, p.query_id, p.positive_id, p.source, coalesce(p.via_query_id, p.query_id) AS evidence_query_id
    FROM {merged} p
    SEMI JOIN {excluded} a ON a.tenant = p.tenant AND a.query_id = p.query_id AND a.doc_id = p.negative_id
"""

# A contradicted pair gets the redrawn negative, null if there is no other candidate.
FINAL_PAIRS_SQL = """
    SELECT p.* REPLACE (
        CASE WHEN c.source IS NULL THEN p.negative_id ELSE r.negative_id END AS negative_id,
        CASE WHEN c.source IS NULL THEN p.negative_score ELSE r.negative_score END AS negative_score
    )
    FROM {merged} p
    LEFT JOIN {contradicted} c USING (tenant, query_id, positive_id, source)
    LEFT JOIN {redrawn} r USING (tenant, query_id, positive_id, source)
"""


@dataclass(frozen=True)
class LendingRules:
    """What associated queries lend.

    Attributes:
        max_lenders: maximum number of lenders per query and kind, best match first; 0: no maximum.
        merge: `all`: one row per query, positive and source. `strongest`: one row per query and positive, from the
            first of own clicks, own relevance, borrowed clicks, borrowed relevance.
        guarded: borrow a clicked document only if it was in the upper half of the borrower's results too, or if two
            queries lend it. It is no negative in any case.
    """

    max_lenders: int
    merge: Merge
    guarded: bool


def find_loans(
    connection: duckdb.DuckDBPyConnection, borrowers: Relation, *, before: str, within_split: bool = False
) -> Relation:
    """Find the associations by which queries borrow evidence.

    Args:
        connection: a connection with the table associations and, with `within_split`, query_clusters.
        borrowers: queries that borrow: tenant and query_id.
        before: ISO date; associations of that day and later are ignored.
        within_split: only queries of the same split lend.

    Returns:
        tenant, query_id, via_query_id (the lender), kind (click or relevance), terms, score, date.
    """
    loans_sql = LOANS_WITHIN_SPLIT_SQL if within_split else LOANS_SQL
    return materialize(connection, loans_sql, {"before": before}, borrowers=borrowers)


def with_lenders(connection: duckdb.DuckDBPyConnection, borrowers: Relation, loans: Relation) -> Relation:
    """The queries whose evidence is needed: the borrowers and their lenders (tenant, query_id), without duplicates."""
    return materialize(connection, BORROWERS_AND_LENDERS_SQL, borrowers=borrowers, loans=loans)


def multi_hop(
    connection: duckdb.DuckDBPyConnection,
    borrowers: Relation,
    loans: Relation,
    hop: OneHop,
    rules: LendingRules,
) -> Relation:
    """Make all pairs of the borrowers, from own and borrowed evidence.

    A positive wins over a negative, whatever their sources: a document that is a positive of a query, or was clicked
    for it, is never a negative of its pairs. Its replacement is drawn from the query whose evidence made the pair. A
    borrowed positive that the borrower's users skipped stays a positive.

    Args:
        connection: a connection with the tables that `hop` reads; it also holds the relations.
        borrowers: queries whose pairs are made: tenant and query_id.
        loans: the result of `find_loans` for these borrowers.
        hop: makes the one-hop pairs of borrowers and lenders.
        rules: what is lent.

    Returns:
        Rows with the columns of `mined_pairs`, in undefined order; `negative_id` is null without a candidate.

    Source: ScalingNote, 4.1: ClickA(q1←q2) lends q2's click data to q1; RelA lends relevance data both ways; all four
    sources are merged.
    """
    queries = with_lenders(connection, borrowers, loans)
    one_hop_pairs = hop.pairs(connection, queries)
    pairs_by_kind = {"click_pairs": one_hop_pairs.click_pairs, "relevance_pairs": one_hop_pairs.relevance_pairs}
    lender_limit = {"max_lenders": rules.max_lenders, "seed": hop.seed}
    lenders = materialize(connection, TOP_LENDERS_SQL, lender_limit, loans=loans, **pairs_by_kind)
    all_sources = materialize(
        connection,
        PAIRS_OF_ALL_SOURCES_SQL,
        {"guarded": rules.guarded},
        lenders=lenders,
        borrowers=borrowers,
        high_documents=one_hop_pairs.high_documents,
        **pairs_by_kind,
    )
    excluded = materialize(
        connection,
        EXCLUDED_DOCUMENTS_SQL,
        pairs=all_sources,
        clicked_documents=one_hop_pairs.clicked_documents,
        borrowers=borrowers,
    )
    lent = materialize(connection, LENT_PAIRS_SQL, all_sources=all_sources)
    merged = lent if rules.merge == "all" else materialize(connection, STRONGEST_PAIRS_SQL, pairs=lent)
    contradicted = materialize(connection, CONTRADICTED_PAIRS_SQL, merged=merged, excluded=excluded)
    redrawn = hop.redraw_negatives(connection, one_hop_pairs, contradicted, excluded)
    pairs = materialize(connection, FINAL_PAIRS_SQL, merged=merged, contradicted=contradicted, redrawn=redrawn)
    # A set, because both names are the same relation if `merge` is "all".
    drop(connection, lenders, excluded, contradicted, redrawn, all_sources, *one_hop_pairs, *{lent, merged})
    return pairs
