"""Details of one query and of one document."""

from __future__ import annotations

from typing import Any

from darklode.pipeline.base.document_view import DOCUMENT_SQL, DocumentExcerpt
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.base.types import Row
from darklode.pipeline.browse.catalogue import Catalogue

MAX_ROWS = 100
"""Maximum number of rows of tables without pagination."""

_PASSAGE_COLUMNS = "p.passage_id, p.doc_id, p.title, p.url"
_KEY_CONDITION = "tenant = $tenant AND query_id = $query_id"

_QUERY_SQL = """
    SELECT q.* EXCLUDE (folded), x.* EXCLUDE (query),
           (SELECT count(*) FROM all_triplets t WHERE t.query = q.query) AS triplets
    FROM all_queries q LEFT JOIN counts x USING (query)
    WHERE tenant = $tenant AND query_id = $query_id
"""
_ADJACENT_QUERIES_SQL = (
    "SELECT query, tenant, query_id FROM all_queries WHERE query IN ($query - 1, $query + 1) ORDER BY query"
)
_RANKS_SQL = "SELECT passage, retriever, rank FROM ranks WHERE query = $query ORDER BY passage, rank, retriever"
_ANSWERS_SQL = (
    "SELECT passage, reviewer, relevance, rationale FROM human_answers WHERE query = $query ORDER BY passage, reviewer"
)
_VERDICTS_SQL = (
    f"SELECT chunk_id, judge_id, rationale, error FROM verdicts WHERE {_KEY_CONDITION} ORDER BY chunk_id, judge_id"
)

_SPELLINGS_SQL = f"""
    SELECT query, CAST(sum(searches) AS BIGINT) AS searches FROM query_spellings WHERE {_KEY_CONDITION}
    GROUP BY query ORDER BY searches DESC, query LIMIT {MAX_ROWS}
"""
_TERMS_SQL = (
    f"SELECT term, importance FROM query_terms WHERE {_KEY_CONDITION} ORDER BY importance DESC, term LIMIT {MAX_ROWS}"
)
_CLICK_EVIDENCE_SQL = f"""
    SELECT e.*, {_PASSAGE_COLUMNS} FROM (
        SELECT doc_id AS shown_id, CAST(sum(exposures) AS BIGINT) AS exposures, CAST(sum(clicks) AS BIGINT) AS clicks,
               CAST(sum(satisfied) AS BIGINT) AS satisfied, sum(expected) AS expected,
               min(date) AS since, max(date) AS until
        FROM click_evidence WHERE {_KEY_CONDITION} GROUP BY doc_id
    ) e LEFT JOIN all_passages p ON p.tenant = $tenant AND p.passage_id = e.shown_id
    ORDER BY e.clicks DESC, e.exposures DESC, e.shown_id LIMIT {MAX_ROWS}
"""
_RANKED_DOCUMENTS_SQL = f"""
    SELECT r.place, r.score, r.doc_id AS ranked_id, {_PASSAGE_COLUMNS} FROM (
        SELECT 0 AS place, positive_id AS doc_id, positive_score AS score FROM relevance_evidence WHERE {_KEY_CONDITION}
        UNION ALL
        SELECT unnest(range(1, len(negative_ids) + 1)), unnest(negative_ids), unnest(negative_scores)
        FROM relevance_evidence WHERE {_KEY_CONDITION}
    ) r LEFT JOIN all_passages p ON p.tenant = $tenant AND p.passage_id = r.doc_id ORDER BY place LIMIT {MAX_ROWS}
"""
_ASSOCIATIONS_SQL = f"""
    SELECT a.direction, a.kind, a.terms, a.score, a.date, q.tenant, q.query_id, q.text AS query_text FROM (
        SELECT 'source of evidence' AS direction, associated_query_id AS other, kind, terms, score, date
        FROM associations WHERE {_KEY_CONDITION}
        UNION ALL
        SELECT 'receives evidence', query_id, kind, terms, score, date
        FROM associations WHERE tenant = $tenant AND associated_query_id = $query_id
    ) a JOIN all_queries q ON q.tenant = $tenant AND q.query_id = a.other
    ORDER BY direction DESC, a.score DESC, a.kind, q.query_id LIMIT {MAX_ROWS}
"""
_NEAR_DUPLICATES_SQL = f"""
    SELECT q.tenant, q.query_id, q.text AS query_text, q.split FROM query_clusters c
    JOIN all_queries q ON q.tenant = c.tenant AND q.query_id = c.query_id
    WHERE c.tenant = $tenant AND c.query_id <> $query_id
        AND c.cluster_id = (SELECT cluster_id FROM query_clusters WHERE {_KEY_CONDITION})
    ORDER BY q.query_id LIMIT {MAX_ROWS}
"""
_TEST_DOCUMENTS_SQL = f"""
    SELECT t.kind, t.source, t.date, t.shares_positive, t.doc_id AS tested_id, {_PASSAGE_COLUMNS}
    FROM (FROM mined_test WHERE {_KEY_CONDITION}) t
    LEFT JOIN all_passages p ON p.tenant = $tenant AND p.passage_id = t.doc_id ORDER BY t.doc_id LIMIT {MAX_ROWS}
"""
_EVIDENCE_QUERIES = {
    "spellings": _SPELLINGS_SQL,
    "terms": _TERMS_SQL,
    "evidence": _CLICK_EVIDENCE_SQL,
    "ranked": _RANKED_DOCUMENTS_SQL,
    "hops": _ASSOCIATIONS_SQL,
    "near_duplicates": _NEAR_DUPLICATES_SQL,
    "tests": _TEST_DOCUMENTS_SQL,
}


def query_of(catalogue: Catalogue, tenant: str, query_id: str) -> Row:
    """A query's row with its counts, and the keys of its neighbours in the list as `earlier` and `later`.

    Raises:
        InputError: unknown query.
    """
    query_rows = catalogue.rows(_QUERY_SQL, tenant=tenant, query_id=query_id)
    if not query_rows:
        raise InputError("The run has no such query.")
    number = query_rows[0]["query"]
    adjacent = {row["query"]: row for row in catalogue.rows(_ADJACENT_QUERIES_SQL, query=number)}
    return {**query_rows[0], "earlier": adjacent.get(number - 1), "later": adjacent.get(number + 1)}


def judged_pool(catalogue: Catalogue, query: Row) -> dict[str, Any]:
    """Ranks, human answers and verdicts of a benchmark query's candidates.

    Returns:
        `ranks` and `answers` by passage, `verdicts` by chunk_id; each a list of rows.
    """
    key = {"tenant": query["tenant"], "query_id": query["query_id"]}
    return {
        "ranks": _group_by("passage", catalogue.rows(_RANKS_SQL, query=query["query"])),
        "answers": _group_by("passage", catalogue.rows(_ANSWERS_SQL, query=query["query"])),
        "verdicts": _group_by("chunk_id", catalogue.rows(_VERDICTS_SQL, **key)),
    }


def evidence(catalogue: Catalogue, query: Row) -> dict[str, list[Row]]:
    """Evidence of a log query.

    Returns:
        `spellings`, `terms`, `evidence` (clicks by document), `ranked` (the ranker's documents, best first), `hops`
        (associated queries), `near_duplicates` (queries of the same cluster), and `tests`.
    """
    key = {"tenant": query["tenant"], "query_id": query["query_id"]}
    return {name: catalogue.rows(sql, **key) for name, sql in _EVIDENCE_QUERIES.items()}


def _group_by(column: str, rows: list[Row]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


_ANSWERED_QUERIES_SQL = """
    SELECT DISTINCT q.tenant, q.query_id, q.text AS query_text, q.split FROM {pairs} x
    JOIN all_passages p USING (passage) JOIN all_queries q USING (query)
    WHERE p.tenant = $tenant AND p.doc_id = $doc_id ORDER BY q.query_id LIMIT {limit}
"""


def document_of(
    catalogue: Catalogue, tenant: str, doc_id: str, chunk_id: str | None
) -> tuple[DocumentExcerpt, list[Row]]:
    """A document, and the queries it answers according to the labels or the mined triplets.

    Raises:
        InputError: unknown document.
    """
    key = {"tenant": tenant, "doc_id": doc_id}
    documents = catalogue.rows(DOCUMENT_SQL, **key, chunk_id=chunk_id)
    if not documents:
        raise InputError("The run has no such document.")
    pairs = "all_triplets" if catalogue.mined else "(FROM pairs WHERE relevance > 0)"
    return DocumentExcerpt.from_row(documents[0]), catalogue.rows(
        _ANSWERED_QUERIES_SQL.format(pairs=pairs, limit=MAX_ROWS), **key
    )
