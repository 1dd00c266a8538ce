"""Numbers about a mined run, each a small Arrow table. Every function takes `views.all_tables(run)`."""

import pyarrow as pa

from pipeline.artifacts import Tables

SOURCES = """
    SELECT source, split, tier, count(*) AS triplets, count(DISTINCT tenant || chr(0) || query_id) AS queries,
           count(*) FILTER (len(negative_ids) = 0) AS without_negative
    FROM triplets GROUP BY ALL ORDER BY ALL
"""

BY_SOURCE = """
    SELECT source, count(*) AS triplets, count(*) FILTER (split = 'train') AS train,
           count(*) FILTER (split = 'validation') AS validation,
           count(*) FILTER (len(negative_ids) = 0) AS without_negative,
           count(DISTINCT tenant || chr(0) || query_id) AS queries
    FROM triplets GROUP BY source ORDER BY source
"""

NIGHTS = """
    WITH evidence AS (
        SELECT date, sum(exposures) AS exposures, sum(clicks) AS clicks, count(DISTINCT query_id) AS queries
        FROM click_evidence GROUP BY date
    ), news AS (SELECT date, count(*) AS new_queries FROM log_queries GROUP BY date),
    pairs AS (
        SELECT date, count(*) FILTER (source = 'click_one_hop') AS click_one_hop,
               count(*) FILTER (source = 'click_multi_hop') AS click_multi_hop,
               count(*) FILTER (source = 'relevance_one_hop') AS relevance_one_hop,
               count(*) FILTER (source = 'relevance_multi_hop') AS relevance_multi_hop
        FROM mined_pairs GROUP BY date
    )
    SELECT date, CAST(exposures AS BIGINT) AS exposures, CAST(clicks AS BIGINT) AS clicks, queries,
           coalesce(new_queries, 0) AS new_queries, coalesce(click_one_hop, 0) AS click_one_hop,
           coalesce(click_multi_hop, 0) AS click_multi_hop, coalesce(relevance_one_hop, 0) AS relevance_one_hop,
           coalesce(relevance_multi_hop, 0) AS relevance_multi_hop
    FROM evidence LEFT JOIN news USING (date) LEFT JOIN pairs USING (date) ORDER BY date
"""

GRAPH = """
    WITH lenders AS (SELECT kind, count(*) AS n FROM associations GROUP BY tenant, query_id, kind)
    SELECT kind, count(*) AS queries, CAST(sum(n) AS BIGINT) AS associations, avg(n) AS mean, max(n) AS max,
           CAST(sum(CASE WHEN $most > 0 THEN greatest(n - $most, 0) ELSE 0 END) AS BIGINT) AS beyond_the_cap
    FROM lenders GROUP BY kind ORDER BY kind
"""

CONFIRMED = """
    SELECT source, judge_id, count(*) AS looked_at, count(*) FILTER (relevant) AS confirmed,
           count(*) FILTER (NOT relevant) AS refuted, count(*) FILTER (relevant IS NULL) AS unreadable,
           count(*) FILTER (relevant) / nullif(count(relevant), 0) AS share
    FROM mined_verdicts GROUP BY source, judge_id ORDER BY source, judge_id
"""

# ScalingNote, Table 1, for each tier with all that it holds. Words are counted once, at the smallest tier with them.
TIERS = """
    WITH tiers AS (FROM (VALUES (1, 'small'), (2, 'median'), (3, 'large')) AS t(size, tier)),
    sized AS (SELECT size, tenant, query, positive_id AS doc_id FROM triplets JOIN tiers USING (tier)),
    named AS (SELECT tenant, doc_id, min(size) AS size FROM sized GROUP BY tenant, doc_id),
    texts AS (
        SELECT size, count(*) AS documents, count(title) AS titles, count(text) AS texts,
               sum(len(string_split_regex(trim(title), '\\s+'))) AS title_words,
               sum(len(string_split_regex(trim(text), '\\s+'))) AS text_words
        FROM named JOIN documents USING (tenant, doc_id) GROUP BY size
    ), asked AS (SELECT size, count(*) AS pairs, sum(len(string_split(query, ' '))) AS words FROM sized GROUP BY size),
    held AS (
        SELECT t.size, t.tier, CAST(sum(documents) AS BIGINT) AS documents,
               sum(title_words) / nullif(sum(titles), 0) AS words_per_title,
               sum(text_words) / sum(texts) AS words_per_text
        FROM tiers t JOIN texts x ON x.size <= t.size GROUP BY t.size, t.tier
    ), searched AS (
        SELECT t.size, CAST(sum(pairs) AS BIGINT) AS pairs, sum(words) / sum(pairs) AS words_per_query
        FROM tiers t JOIN asked a ON a.size <= t.size GROUP BY t.size
    )
    SELECT tier, documents, pairs, words_per_title, words_per_text, words_per_query
    FROM held JOIN searched USING (size) ORDER BY size
"""


def sources(tables: Tables) -> pa.Table:
    """Triplets by source, split and tier."""
    return tables.sql(SOURCES)


def by_source(tables: Tables) -> pa.Table:
    """Triplets by source."""
    return tables.sql(BY_SOURCE)


def nights(tables: Tables) -> pa.Table:
    """What each day of the log held, and the pairs that it was the first to give."""
    return tables.sql(NIGHTS)


def confirmed(tables: Tables) -> pa.Table:
    """What share of the pairs that the judge looked at it confirms, by source."""
    return tables.sql(CONFIRMED)


def graph(tables: Tables, most: int) -> pa.Table:
    """How many queries have lenders, how many, and how many are beyond the cap of `most` (0: no cap)."""
    with tables.connect() as connection:
        found: pa.Table = connection.sql(GRAPH, params={"most": most}).to_arrow_table()
        return found


def tiers(tables: Tables) -> pa.Table:
    """The statistics of ScalingNote's Table 1 for each tier; a larger tier holds the smaller ones."""
    return tables.sql(TIERS)
