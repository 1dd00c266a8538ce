"""SQL of the in-memory tables of a benchmark run: queries, passages (chunks), pool pairs, ranks and triplets."""

from darklode.pipeline.base.highlighting import COUNT_FENCES_SQL

FOLDED_TEXT_SQL = "strip_accents(lower({}))"
"""SQL that removes case and accents from a text."""

_CREATE_QUERIES = f"""
    CREATE TABLE all_queries AS
    SELECT CAST(row_number() OVER (ORDER BY tenant, query_id) AS INTEGER) AS query, tenant, query_id, text, split,
           language, n_represented, cluster_id, {FOLDED_TEXT_SQL.format("text")} AS folded
    FROM queries
"""
# A chunk begins inside a fenced code block if the chunks before it contain an odd number of fences.
_CREATE_PASSAGES = f"""
    CREATE TABLE all_passages AS
    SELECT CAST(row_number() OVER (ORDER BY c.tenant, c.chunk_id) AS INTEGER) AS passage, c.tenant,
           c.chunk_id AS passage_id, c.doc_id, c.title, c.heading, c.text, d.url,
           coalesce(sum({COUNT_FENCES_SQL.format(text="c.text")}) OVER preceding_chunks % 2 = 1, false) AS fenced,
           {FOLDED_TEXT_SQL.format("concat_ws(chr(10), c.title, c.heading, c.text)")} AS folded
    FROM chunks c LEFT JOIN (SELECT tenant, doc_id, url FROM documents) d ON d.tenant = c.tenant AND d.doc_id = c.doc_id
    WINDOW preceding_chunks AS (
        PARTITION BY c.tenant, c.doc_id ORDER BY c.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
"""
# Rows of a table with the numbers of their query and passage; pairs of dropped queries or passages are left out.
_PAIR_NUMBERS_SQL = """
    SELECT q.query, p.passage, {columns} FROM {table} t
    JOIN all_queries q ON q.tenant = t.tenant AND q.query_id = t.query_id
    JOIN all_passages p ON p.tenant = t.tenant AND p.passage_id = t.chunk_id
"""


def _with_pair_numbers(table: str, columns: str) -> str:
    return _PAIR_NUMBERS_SQL.format(table=table, columns=columns)


_CREATE_HUMAN_ANSWERS = f"""
    CREATE TABLE human_answers AS
    {_with_pair_numbers("answers", "t.reviewer, t.relevance, t.rationale")}
    UNION ALL {_with_pair_numbers("human_labels", "CAST(NULL AS VARCHAR), t.relevance, CAST(NULL AS VARCHAR)")}
"""
_CREATE_FINDERS = """
    CREATE TABLE finders AS SELECT row_number() OVER (ORDER BY retrievers) AS found_by, retrievers
    FROM (SELECT DISTINCT retrievers FROM pool)
"""
_CREATE_PAIRS = f"""
    CREATE TABLE pairs AS
    WITH candidates AS ({_with_pair_numbers("pool", "t.retrievers, t.best_rank, t.fused_score")}),
    pair_verdicts AS (
        SELECT query, passage, bool_or(relevant) AS relevant, max(probability) AS probability, max(grade) AS grade
        FROM ({_with_pair_numbers("verdicts", "t.relevant, t.probability, t.grade")}) GROUP BY query, passage
    ),
    labels AS ({_with_pair_numbers("qrels", "t.relevance, t.source, t.weight")}),
    people AS (
        SELECT query, passage, count(*) FILTER (relevance > 0) AS yes, count(*) FILTER (relevance = 0) AS no
        FROM human_answers GROUP BY query, passage
    )
    SELECT c.query, c.passage, CAST(f.found_by AS INTEGER) AS found_by, c.best_rank, c.fused_score,
           CASE WHEN j.query IS NULL THEN 'unjudged' WHEN j.relevant IS NULL THEN 'unreadable'
                WHEN j.relevant THEN 'relevant' ELSE 'not relevant' END AS outcome,
           j.probability, j.grade, l.relevance, l.source AS labelled_by,
           CASE WHEN l.relevance > 0 THEN 'relevant' WHEN l.relevance = 0 THEN 'not relevant'
                WHEN bool_or(l.relevance > 0) OVER (PARTITION BY c.query) THEN 'uncertain'
                WHEN l.weight > 0 THEN 'near miss' WHEN l.query IS NOT NULL THEN 'uncertain' END AS label,
           CASE WHEN h.yes > h.no THEN 'relevant' WHEN h.yes < h.no THEN 'not relevant' WHEN h.yes > 0 THEN 'divided'
                WHEN h.query IS NOT NULL THEN 'skipped' END AS people
    FROM candidates c JOIN finders f ON f.retrievers = c.retrievers
    LEFT JOIN pair_verdicts j ON j.query = c.query AND j.passage = c.passage
    LEFT JOIN labels l ON l.query = c.query AND l.passage = c.passage
    LEFT JOIN people h ON h.query = c.query AND h.passage = c.passage
    ORDER BY c.query, c.fused_score DESC, c.passage
"""
_CREATE_RANKS = f"""
    CREATE TABLE ranks AS
    SELECT r.query, r.passage, r.retriever, CAST(r.rank AS SMALLINT) AS rank
    FROM ({_with_pair_numbers("rankings", "t.retriever, t.rank")}) r
    SEMI JOIN pairs p ON p.query = r.query AND p.passage = r.passage
"""
_CREATE_COUNTS = """
    CREATE TABLE counts AS
    SELECT query, count(*) AS candidates, count(*) FILTER (outcome = 'relevant') AS relevant,
           count(*) FILTER (outcome = 'unreadable') AS unreadable, count(people) AS by_people
    FROM pairs GROUP BY query
"""
_CREATE_TRIPLETS = """
    CREATE TABLE all_triplets AS
    WITH numbered_triplets AS (
        SELECT CAST(row_number() OVER (ORDER BY t.tenant, t.query_id, t.triplet_id) AS INTEGER) AS triplet,
               t.triplet_id, t.tenant, q.query, p.passage, t.negative_ids, t.positive_score, t.source, t.split
        FROM triplets t JOIN all_queries q ON q.tenant = t.tenant AND q.query_id = t.query_id
        JOIN all_passages p ON p.tenant = t.tenant AND p.passage_id = t.positive_id
    ),
    triplet_negatives AS (
        SELECT triplet, tenant, unnest(negative_ids) AS passage_id, generate_subscripts(negative_ids, 1) AS place
        FROM numbered_triplets
    ),
    negatives AS (
        SELECT triplet, list(passage ORDER BY place) AS negatives FROM triplet_negatives
        JOIN all_passages USING (tenant, passage_id) GROUP BY triplet
    )
    SELECT n.triplet, n.triplet_id, n.query, n.passage, coalesce(g.negatives, []) AS negatives, n.positive_score,
           n.source, n.split, CAST(NULL AS INTEGER) AS via, CAST(NULL AS DATE) AS date,
           CAST(NULL AS VARCHAR) AS tier, j.outcome, j.probability, j.grade
    FROM numbered_triplets n LEFT JOIN negatives g USING (triplet)
    LEFT JOIN pairs j ON j.query = n.query AND j.passage = n.passage
    ORDER BY triplet
"""
CREATE_REJECTS = f"""
    CREATE TABLE all_rejects AS
    SELECT row_number() OVER (ORDER BY r.stage, r.reason, r.file, r.line, r.tenant, r.id, r.payload) AS n, r.*,
           {FOLDED_TEXT_SQL.format("concat_ws(chr(10), r.id, r.file, r.payload)")} AS folded
    FROM rejects r ORDER BY n
"""

# Executed in this order, because later steps read the tables of earlier ones. Besides the run's tables they read
# `answers`, the reviewers' current answers, which `open_catalogue` registers.
STEPS = (
    _CREATE_QUERIES,
    _CREATE_PASSAGES,
    _CREATE_HUMAN_ANSWERS,
    _CREATE_FINDERS,
    _CREATE_PAIRS,
    _CREATE_RANKS,
    _CREATE_COUNTS,
    _CREATE_TRIPLETS,
    CREATE_REJECTS,
)
