"""SQL of the in-memory tables of a mined run: log queries, passages (documents), triplets and evidence counts."""

from darklode.pipeline.browse.build_tables import CREATE_REJECTS, FOLDED_TEXT_SQL

_CREATE_QUERIES = f"""
    CREATE TABLE all_queries AS
    SELECT CAST(row_number() OVER (ORDER BY q.tenant, q.query_id) AS INTEGER) AS query, q.tenant, q.query_id, q.text,
           c.split, q.date, {FOLDED_TEXT_SQL.format("q.text")} AS folded
    FROM log_queries q LEFT JOIN query_clusters c ON c.tenant = q.tenant AND c.query_id = q.query_id
"""
_CREATE_PASSAGES = f"""
    CREATE TABLE all_passages AS
    SELECT CAST(row_number() OVER (ORDER BY tenant, doc_id) AS INTEGER) AS passage, tenant, doc_id AS passage_id,
           doc_id, title, CAST(NULL AS VARCHAR) AS heading, left(text, 2000) AS text, url, false AS fenced,
           {FOLDED_TEXT_SQL.format("concat_ws(chr(10), title, text)")} AS folded
    FROM documents
"""
_CLICK_COUNTS_SQL = """
    SELECT q.query, CAST(sum(e.clicks) AS BIGINT) AS clicks, CAST(sum(e.exposures) AS BIGINT) AS exposures
    FROM click_evidence e JOIN all_queries q ON q.tenant = e.tenant AND q.query_id = e.query_id GROUP BY q.query
"""
_CREATE_TRIPLETS = """
    CREATE TABLE all_triplets AS
    SELECT CAST(row_number() OVER (ORDER BY t.tenant, t.query_id, t.triplet_id) AS INTEGER) AS triplet,
           t.triplet_id, q.query, p.passage, list_filter([n.passage], lambda number: number IS NOT NULL) AS negatives,
           t.positive_score, t.source, t.split, v.query AS via, t.date, t.tier,
           CASE WHEN j.tenant IS NULL THEN 'unjudged' WHEN j.relevant IS NULL THEN 'unreadable'
                WHEN j.relevant THEN 'relevant' ELSE 'not relevant' END AS outcome, j.probability
    FROM triplets t JOIN all_queries q ON q.tenant = t.tenant AND q.query_id = t.query_id
    JOIN all_passages p ON p.tenant = t.tenant AND p.passage_id = t.positive_id
    LEFT JOIN all_passages n ON n.tenant = t.tenant AND n.passage_id = t.negative_ids[1]
    LEFT JOIN all_queries v ON v.tenant = t.tenant AND v.query_id = t.via_query_id
    LEFT JOIN mined_verdicts j ON j.tenant = t.tenant AND j.query_id = t.query_id AND j.positive_id = t.positive_id
        AND j.source = t.source
    ORDER BY triplet
"""
_CREATE_COUNTS = f"""
    CREATE TABLE counts AS
    SELECT q.query, coalesce(n.clicks, 0) AS clicks, coalesce(n.exposures, 0) AS exposures,
           coalesce(t.triplets, 0) AS triplets
    FROM all_queries q LEFT JOIN ({_CLICK_COUNTS_SQL}) n USING (query)
    LEFT JOIN (SELECT query, count(*) AS triplets FROM all_triplets GROUP BY query) t USING (query)
"""

STEPS = (_CREATE_QUERIES, _CREATE_PASSAGES, _CREATE_TRIPLETS, _CREATE_COUNTS, CREATE_REJECTS)
