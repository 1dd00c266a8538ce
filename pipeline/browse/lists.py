"""Lists of a run: queries, pairs, triplets and rejects."""

from __future__ import annotations

from dataclasses import replace

from darklode.pipeline.browse.catalogue import Catalogue
from darklode.pipeline.browse.filtering import Filter, Listing

_OUTCOME_VALUES_SQL = "SELECT * FROM (VALUES ('relevant'), ('not relevant'), ('unreadable'), ('unjudged'))"
_QUERIES_AND_PASSAGES = ("queries", "passages")
_MATCHES_SQL = "x.query IN (FROM queries_{word}) OR x.passage IN (FROM passages_{word})"


def _distinct(column: str, table: str) -> str:
    return f"SELECT DISTINCT {column} AS value FROM {table} WHERE {column} IS NOT NULL ORDER BY value"


_TENANT = Filter("tenant", "tenant", "q.tenant = $tenant", _distinct("tenant", "all_queries"))
_SPLIT = Filter("split", "split", "q.split = $split", _distinct("split", "all_queries"))
_PROBABILITY = (
    Filter("min_probability", "probability from", "x.probability >= $min_probability"),
    Filter("max_probability", "to", "x.probability <= $max_probability"),
)
# `x` is the list's own table, `q` its query, and `page_rows` are the rows of the page (see `Listing`).
_PAGE_ROW_COLUMNS = "page_rows.* EXCLUDE (text, folded), page_rows.text AS query_text"
_PASSAGE_COLUMNS = "p.passage_id, p.doc_id, p.title, p.heading, p.text, p.url, p.fenced"
_NEGATIVE_STRUCT = """
    {'passage_id': p.passage_id, 'doc_id': p.doc_id, 'title': p.title, 'heading': p.heading, 'text': p.text,
     'url': p.url, 'fenced': p.fenced}
"""

QUERIES = Listing(
    "queries",
    "Queries",
    "Queries that passed cleaning, with their candidates and positives.",
    "all_queries q LEFT JOIN counts x USING (query)",
    ("queries",),
    "q.query IN (FROM queries_{word})",
    "SELECT * EXCLUDE (folded) FROM page_rows ORDER BY place",
    {
        "by id": "q.query",
        "by text": "q.folded, q.query",
        "most relevant": "x.relevant DESC NULLS LAST, q.query",
        "fewest relevant": "x.relevant, q.query",
    },
    (
        _TENANT,
        _SPLIT,
        Filter("language", "language", "q.language = $language", _distinct("language", "all_queries")),
        Filter(
            "positives",
            "positives",
            "CASE $positives WHEN 'some' THEN x.relevant > 0 WHEN 'none' THEN coalesce(x.relevant, 0) = 0 END",
            "SELECT * FROM (VALUES ('some'), ('none'))",
        ),
    ),
)

LOG_QUERIES = replace(
    QUERIES,
    about="Distinct queries of the log, with their clicks, impressions and triplets.",
    orders={
        "by id": "q.query",
        "by text": "q.folded, q.query",
        "most clicked": "x.clicks DESC, q.query",
        "most triplets": "x.triplets DESC, q.query",
        "newest first": "q.date DESC, q.query",
    },
    filters=(
        _TENANT,
        _SPLIT,
        Filter(
            "evidence",
            "evidence",
            "CASE $evidence WHEN 'clicked' THEN x.clicks > 0 WHEN 'never clicked' THEN x.clicks = 0 "
            "WHEN 'no triplet' THEN x.triplets = 0 END",
            "SELECT * FROM (VALUES ('clicked'), ('never clicked'), ('no triplet'))",
        ),
    ),
)

PAIRS = Listing(
    "pairs",
    "Pairs",
    "Queries with their pooled candidates, the judge's verdicts and human answers.",
    "pairs x JOIN all_queries q USING (query)",
    _QUERIES_AND_PASSAGES,
    _MATCHES_SQL,
    f"""
        SELECT {_PAGE_ROW_COLUMNS}, {_PASSAGE_COLUMNS}, f.retrievers
        FROM page_rows JOIN all_passages p USING (passage) JOIN finders f USING (found_by) ORDER BY place
    """,
    {
        "by query": "x.query, x.fused_score DESC, x.passage",
        "highest probability": "x.probability DESC NULLS LAST, x.query, x.passage",
        "lowest probability": "x.probability, x.query, x.passage",
        "most uncertain": "abs(x.probability - 0.5), x.query, x.passage",
    },
    (
        _TENANT,
        _SPLIT,
        Filter("outcome", "verdict", "x.outcome = $outcome", _OUTCOME_VALUES_SQL),
        Filter("label", "label", "x.label = $label", _distinct("label", "pairs")),
        Filter(
            "people",
            "human answer",
            "CASE $people WHEN 'disagrees with the judge' THEN x.people IN ('relevant', 'not relevant') "
            "AND x.people <> x.outcome ELSE x.people = $people END",
            f"{_distinct('people', 'pairs').removesuffix('ORDER BY value')} "
            "UNION ALL SELECT 'disagrees with the judge' WHERE EXISTS (FROM human_answers) ORDER BY value",
        ),
        Filter(
            "retriever",
            "found by",
            "x.found_by IN (SELECT found_by FROM finders WHERE list_contains(retrievers, $retriever))",
            "SELECT DISTINCT unnest(retrievers) AS value FROM finders ORDER BY value",
        ),
        Filter(
            "only_retriever",
            "found only by",
            "x.found_by IN (SELECT found_by FROM finders WHERE retrievers = [$only_retriever])",
            "SELECT retrievers[1] AS value FROM finders WHERE len(retrievers) = 1 ORDER BY value",
        ),
        *_PROBABILITY,
    ),
)

CANDIDATES = replace(
    PAIRS,
    orders={"by fused rank": PAIRS.orders["by query"], **{k: v for k, v in PAIRS.orders.items() if k != "by query"}},
    filters=tuple(pair_filter for pair_filter in PAIRS.filters if pair_filter not in (_TENANT, _SPLIT)),
)
"""Pairs of one query."""

MAX_NEGATIVES = 3
"""Number of negatives shown per triplet in a list."""

_TRIPLETS_SQL = f"""
    WITH numbered_negatives AS (
        SELECT triplet, unnest(negatives{{first}}) AS passage, generate_subscripts(negatives{{first}}, 1) AS number
        FROM page_rows
    ), negative_passages AS (
        SELECT triplet, list({_NEGATIVE_STRUCT.replace("{", "{{").replace("}", "}}")} ORDER BY number) AS negatives
        FROM numbered_negatives JOIN all_passages p USING (passage) GROUP BY triplet
    )
    SELECT {_PAGE_ROW_COLUMNS.replace("text,", "text, negatives,")}, len(page_rows.negatives) AS all_negatives,
           coalesce(r.negatives, []) AS negatives, {_PASSAGE_COLUMNS}, v.text AS via_text, v.query_id AS via_query_id
    FROM page_rows JOIN all_passages p USING (passage) LEFT JOIN negative_passages r USING (triplet)
    LEFT JOIN all_queries v ON v.query = page_rows.via ORDER BY place
"""

TRIPLETS = Listing(
    "triplets",
    "Triplets",
    "Training examples: a query, a positive text, and hard negatives.",
    "all_triplets x JOIN all_queries q USING (query)",
    _QUERIES_AND_PASSAGES,
    _MATCHES_SQL,
    _TRIPLETS_SQL.format(first=f"[:{MAX_NEGATIVES}]"),
    {
        "by query": "x.triplet",
        "highest probability": "x.probability DESC NULLS LAST, x.triplet",
        "lowest probability": "x.probability, x.triplet",
        "newest first": "x.date DESC NULLS LAST, x.triplet",
    },
    (
        _TENANT,
        Filter("split", "split", "x.split = $split", _distinct("split", "all_triplets")),
        Filter("source", "source", "x.source = $source", _distinct("source", "all_triplets")),
        Filter("tier", "tier", "x.tier = $tier", _distinct("tier", "all_triplets")),
        Filter("outcome", "verdict", "x.outcome = $outcome", _distinct("outcome", "all_triplets")),
        *_PROBABILITY,
    ),
)

TRIPLET = replace(
    TRIPLETS,
    key="triplet",
    display_sql=_TRIPLETS_SQL.format(first=""),
    filters=(_TENANT, Filter("id", "id", "x.triplet_id = $id", "SELECT DISTINCT triplet_id FROM all_triplets")),
)
"""One triplet with all its negatives."""

OWN_TRIPLETS = replace(TRIPLETS, filters=())
"""Triplets of one query."""

REJECTS = Listing(
    "rejects",
    "Rejects",
    "Rows that a stage dropped or could not read, with the reason.",
    "all_rejects x",
    ("rejects",),
    "x.n IN (FROM rejects_{word})",
    """
        SELECT page_rows.* EXCLUDE (folded), q.text AS represented_text
        FROM page_rows LEFT JOIN all_queries q ON q.tenant = page_rows.tenant AND q.query_id = page_rows.represented_by
        ORDER BY place
    """,
    {"by stage": "x.n"},
    (
        Filter("stage", "stage", "x.stage = $stage", _distinct("stage", "all_rejects")),
        Filter("reason", "reason", "x.reason = $reason", _distinct("reason", "all_rejects")),
        Filter("tenant", "tenant", "x.tenant = $tenant", _distinct("tenant", "all_rejects")),
        Filter("of", "table", 'x."table" = $of', _distinct('"table"', "all_rejects")),
    ),
)


def lists_of(catalogue: Catalogue) -> dict[str, Listing]:
    """Lists of a run by path, in data order."""
    shown = (LOG_QUERIES, TRIPLETS, REJECTS) if catalogue.mined else (QUERIES, PAIRS, TRIPLETS, REJECTS)
    return {listing.key: listing for listing in shown}
