"""SQL of the stage `triplets`: a chain of temporary tables, in the order in which `make_triplets` creates them."""

from darklode.pipeline.retrieve.pool import FUSED_SCORE_SQL

# A shard's view of the tables: its contiguous share of the queries, and the texts that they may need.
SHARD_QUERIES_SQL = """
    CREATE TEMP TABLE shard_queries AS SELECT tenant, query_id FROM (
        SELECT tenant, query_id, ntile($shards) OVER (ORDER BY split, tenant, query_id) AS shard
        FROM queries WHERE split <> 'test'
    ) WHERE shard = $shard
"""
SHARD_VIEW_SQL = "CREATE VIEW {table} AS SELECT * FROM every_{table} SEMI JOIN shard_queries USING (tenant, query_id)"
NEEDED_CHUNKS_SQL = """
    CREATE TEMP TABLE needed_chunks AS
    SELECT tenant, chunk_id FROM pool UNION SELECT tenant, chunk_id FROM rankings
    UNION SELECT tenant, chunk_id FROM held_out_labels
"""
CHUNKS_VIEW_SQL = "CREATE VIEW chunks AS SELECT * FROM every_chunks SEMI JOIN needed_chunks USING (tenant, chunk_id)"

# Chunks with the same `text_hash` have the same text, and count as one.
TEXTS_SQL = "CREATE TEMP TABLE texts AS SELECT tenant, chunk_id, doc_id, sha256(text) AS text_hash FROM chunks"

# Positives of test queries by `qrels`, and of validation queries by `training_labels`, uncertain ones included.
HELD_OUT_LABELS_SQL = """
    CREATE VIEW held_out_labels AS
    SELECT tenant, chunk_id, split FROM qrels JOIN queries USING (tenant, query_id)
    WHERE relevance > 0 AND split = 'test'
    UNION ALL SELECT tenant, chunk_id, split FROM every_training_labels JOIN queries USING (tenant, query_id)
    WHERE relevance IS DISTINCT FROM 0 AND split = 'validation'
"""

# Positives of test queries are excluded from train and validation, those of validation queries from train.
HELD_OUT_TEXTS_SQL = """
    CREATE TEMP TABLE held_out_texts AS
    SELECT tenant, text_hash, bool_or(split = 'test') AS in_test, bool_or(split = 'validation') AS in_validation
    FROM held_out_labels JOIN texts USING (tenant, chunk_id) WHERE $apart GROUP BY tenant, text_hash
"""

# An uncertain positive has a null relevance; unknown ones, of documents that people judged, also a null weight. The
# weight 0, of a judge that contradicts itself, makes a positive unlikely, too.
LABELLED_CHUNKS_SQL = """
    CREATE TEMP TABLE labelled_chunks AS
    SELECT tenant, query_id, chunk_id, text_hash, split, fused_score, source, coalesce(relevance, 1) AS relevance,
           CAST(weight AS FLOAT) AS weight, relevance IS NULL OR coalesce(CAST(weight AS FLOAT) = 0, false) AS unlikely,
           relevance IS NULL AND weight IS NULL AS is_unknown,
           coalesce(in_test OR (split = 'train' AND in_validation), false) AS held_out
    FROM training_labels JOIN pool USING (tenant, query_id, chunk_id) JOIN queries USING (tenant, query_id)
    JOIN texts USING (tenant, chunk_id) LEFT JOIN held_out_texts USING (tenant, text_hash)
"""

_BEST_FIRST_SQL = "source, relevance DESC, weight DESC NULLS LAST, fused_score DESC, chunk_id"

# One row per relevant text: duplicates share one label, human before judge, relevant before not relevant. A query all
# of whose positives are unlikely keeps its best one: one weak positive per query teaches more than none.
RELEVANT_TEXTS_SQL = f"""
    CREATE TEMP TABLE relevant_texts AS
    WITH distinct_texts AS (
        SELECT * FROM labelled_chunks QUALIFY row_number() OVER (
            PARTITION BY tenant, query_id, text_hash
            ORDER BY source, relevance = 0, unlikely, relevance DESC, weight DESC NULLS LAST, fused_score DESC,
                     chunk_id
        ) = 1
    ), ranked_texts AS (
        SELECT *, bool_or(NOT unlikely AND NOT held_out) OVER (PARTITION BY tenant, query_id) AS has_likely,
               row_number() OVER (
                   PARTITION BY tenant, query_id, held_out OR coalesce(weight, 0) = 0
                   ORDER BY {_BEST_FIRST_SQL}
               ) AS text_rank
        FROM distinct_texts WHERE relevance > 0
    ), usable_texts AS (
        SELECT * EXCLUDE (has_likely, text_rank) REPLACE (
            unlikely AND NOT (NOT has_likely AND NOT held_out AND text_rank = 1
                              AND weight > 0) AS unlikely
        ) FROM ranked_texts
    )
    SELECT *, row_number() OVER (
        PARTITION BY tenant, query_id, unlikely OR held_out
        ORDER BY {_BEST_FIRST_SQL}
    ) AS positive_rank FROM usable_texts
"""

# Score of the last candidate of each query: the ceiling of a given positive that no retriever found.
LOWEST_SCORES_SQL = """
    CREATE TEMP TABLE lowest_scores AS
    SELECT tenant, query_id, min(fused_score) FILTER (fused_score > 0) AS lowest FROM pool GROUP BY tenant, query_id
"""

# Positive-aware mining (NV-Retriever): an unjudged chunk is a negative only if its score is below the ceiling.
POSITIVES_SQL = """
    CREATE TEMP TABLE positives AS
    SELECT tenant, query_id, chunk_id AS positive_id, split, weight, fused_score AS positive_score,
           CASE WHEN fused_score > 0 THEN fused_score - abs(fused_score) * CAST($margin AS DOUBLE)
                ELSE lowest END AS ceiling
    FROM relevant_texts LEFT JOIN lowest_scores USING (tenant, query_id) WHERE NOT unlikely AND NOT held_out
    QUALIFY $max_positives = 0
        OR row_number() OVER (PARTITION BY tenant, query_id ORDER BY positive_rank) <= $max_positives
"""

# Documents with a chunk relevant to the query: their other chunks often answer it too, so they are no negatives.
RELEVANT_DOCUMENTS_SQL = """
    CREATE TEMP TABLE relevant_documents AS
    SELECT DISTINCT tenant, query_id, doc_id FROM pool JOIN texts USING (tenant, chunk_id)
    SEMI JOIN relevant_texts USING (tenant, query_id, text_hash) WHERE NOT $same_document
"""

# Only chunks judged not relevant; never unreadable or unjudged ones. Duplicates of a relevant text are excluded, and
# each text is a negative once.
JUDGED_NEGATIVES_SQL = """
    CREATE TEMP TABLE judged_negatives AS
    WITH candidates AS (
        SELECT tenant, query_id, chunk_id, text_hash, fused_score AS score
        FROM training_labels JOIN pool USING (tenant, query_id, chunk_id) JOIN texts USING (tenant, chunk_id)
        SEMI JOIN positives USING (tenant, query_id)
        ANTI JOIN relevant_texts USING (tenant, query_id, text_hash)
        ANTI JOIN relevant_documents USING (tenant, query_id, doc_id)
        WHERE relevance = 0
        QUALIFY row_number() OVER (PARTITION BY tenant, query_id, text_hash ORDER BY fused_score DESC, chunk_id) = 1
    )
    SELECT *, row_number() OVER (PARTITION BY tenant, query_id ORDER BY score DESC, chunk_id) AS negative_rank
    FROM candidates QUALIFY negative_rank <= $negatives
"""

# Members of the pool that the judge was asked about, but gave no label: they may be relevant. Without a judge there are
# none: the other candidates of a query with given labels are not relevant by the usual assumption.
UNLABELLED_SQL = """
    CREATE TEMP TABLE unlabelled AS
    SELECT tenant, query_id, chunk_id FROM pool ANTI JOIN training_labels USING (tenant, query_id, chunk_id)
    WHERE $is_judged
"""

# From beyond the labelled pool, only for queries with too few judged negatives. Duplicates of an unlabelled pool member
# are excluded.
MINED_CANDIDATES_SQL = f"""
    CREATE TEMP TABLE mined_candidates AS
    WITH short_queries AS (
        SELECT tenant, query_id, $negatives - count(judged_negatives.chunk_id) AS n_missing
        FROM (SELECT DISTINCT tenant, query_id FROM positives) LEFT JOIN judged_negatives USING (tenant, query_id)
        GROUP BY tenant, query_id HAVING n_missing > 0
    ), beyond_pool AS (
        SELECT tenant, query_id, chunk_id, CAST({FUSED_SCORE_SQL} AS FLOAT) AS score
        FROM rankings SEMI JOIN short_queries USING (tenant, query_id)
        ANTI JOIN training_labels USING (tenant, query_id, chunk_id)
        ANTI JOIN unlabelled USING (tenant, query_id, chunk_id)
        GROUP BY tenant, query_id, chunk_id
    ), unlabelled_texts AS (
        SELECT tenant, query_id, text_hash
        FROM unlabelled JOIN texts USING (tenant, chunk_id) SEMI JOIN short_queries USING (tenant, query_id)
    ), candidates AS (
        SELECT tenant, query_id, chunk_id, score
        FROM beyond_pool JOIN texts USING (tenant, chunk_id)
        ANTI JOIN unlabelled_texts USING (tenant, query_id, text_hash)
        ANTI JOIN relevant_texts USING (tenant, query_id, text_hash)
        ANTI JOIN relevant_documents USING (tenant, query_id, doc_id)
        ANTI JOIN judged_negatives AS taken USING (tenant, query_id, text_hash)
        QUALIFY row_number() OVER (PARTITION BY tenant, query_id, text_hash ORDER BY score DESC, chunk_id) = 1
    )
    SELECT *, row_number() OVER (PARTITION BY tenant, query_id ORDER BY score DESC, chunk_id) AS negative_rank
    FROM candidates JOIN short_queries USING (tenant, query_id)
"""

# A query's mined chunks are numbered by descending score, so those below a ceiling are contiguous from `first_rank` on.
NEGATIVES_SQL = """
    CREATE TEMP TABLE negatives AS
    WITH score_steps AS (
        SELECT tenant, query_id, n_missing, CAST(score AS DOUBLE) AS score, min(negative_rank) AS first_rank
        FROM mined_candidates GROUP BY tenant, query_id, n_missing, score
    ), mined_ranks AS (
        SELECT p.tenant, p.query_id, p.positive_id,
               unnest(range(s.first_rank, s.first_rank + s.n_missing)) AS negative_rank
        FROM positives p ASOF JOIN score_steps s
          ON s.tenant = p.tenant AND s.query_id = p.query_id AND p.ceiling > s.score
    )
    SELECT tenant, query_id, positive_id, chunk_id, score, negative_rank
    FROM positives JOIN judged_negatives USING (tenant, query_id)
    UNION ALL
    SELECT tenant, query_id, positive_id, chunk_id, score, $negatives + negative_rank
    FROM mined_ranks JOIN mined_candidates USING (tenant, query_id, negative_rank)
"""

# Each positive with its list of negatives, numbered in output order.
NUMBERED_TRIPLETS_SQL = """
    CREATE TEMP TABLE numbered_triplets AS
    WITH lists AS (
        SELECT tenant, query_id, positive_id,
               list(chunk_id ORDER BY negative_rank) AS negative_ids,
               list(score ORDER BY negative_rank) AS negative_scores
        FROM negatives GROUP BY tenant, query_id, positive_id
    )
    SELECT tenant, query_id, positive_id, positive_score, weight, split,
           coalesce(negative_ids, []) AS negative_ids, coalesce(negative_scores, []) AS negative_scores,
           row_number() OVER (ORDER BY split, tenant, query_id, positive_score DESC, positive_id) - 1 AS number
    FROM positives LEFT JOIN lists USING (tenant, query_id, positive_id)
"""

# Reasons why positives make no triplet, read by `_funnel_step`. `copies` share the text of another positive of their
# query; `overruled` ones have a text that people labelled as not relevant.
COUNT_LEFT_OUT_SQL = """
    WITH labelled_positives AS (FROM labelled_chunks WHERE relevance > 0 AND NOT is_unknown),
    overruled AS (FROM labelled_positives ANTI JOIN relevant_texts USING (tenant, query_id, text_hash)),
    counts AS (
        SELECT count(*) AS texts, count(*) FILTER (unlikely) AS unlikely,
               count(*) FILTER (held_out AND NOT unlikely) AS held
        FROM relevant_texts WHERE NOT is_unknown
    )
    SELECT p.n AS total, o.n AS overruled, p.n - o.n - c.texts AS copies, c.unlikely, c.held
    FROM counts c, (SELECT count(*) AS n FROM labelled_positives) p, (SELECT count(*) AS n FROM overruled) o
"""

# Rows of `triplets` with their texts, for a range of numbers.
TRIPLETS_OF_BLOCK_SQL = """
    WITH block AS (SELECT * FROM numbered_triplets WHERE number >= $first AND number < $first + $rows),
    negatives AS (
        SELECT number, list({passage} ORDER BY rank) AS negatives
        FROM (SELECT number, tenant, unnest(negative_ids) AS chunk_id, generate_subscripts(negative_ids, 1) AS rank
              FROM block)
        JOIN chunks USING (tenant, chunk_id) GROUP BY number
    )
    SELECT substr(sha256(concat_ws(chr(0), b.tenant, b.query_id, b.positive_id, CAST($source AS VARCHAR))), 1, 24)
               AS triplet_id, b.tenant, b.query_id, q.text AS query, b.positive_id, {positive} AS positive,
           b.negative_ids, coalesce(n.negatives, []) AS negatives, b.positive_score, b.negative_scores,
           b.weight,
           CAST($source AS VARCHAR) AS source, b.split
    FROM block b
    JOIN queries q ON q.tenant = b.tenant AND q.query_id = b.query_id
    JOIN chunks c ON c.tenant = b.tenant AND c.chunk_id = b.positive_id
    LEFT JOIN negatives n USING (number)
    ORDER BY number
"""
