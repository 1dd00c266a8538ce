"""Triplets grouped to one row per query, for FlagEmbedding and Tevatron.

All positives of a query are in one row, so that none becomes an in-batch negative of another. Negatives are the union
of those of its triplets, hardest first, without ids or texts of its positives.
"""

from collections.abc import Iterator

import duckdb

from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export.writers import any_row

BYTES_PER_BLOCK = 1 << 27
"""Bytes of text grouped at a time, because DuckDB holds aggregated lists in memory."""

# Queries numbered by block of about {size} bytes of text, in the order of split, tenant and query.
_CREATE_QUERY_BLOCKS = """
    CREATE TEMP TABLE query_blocks AS
    WITH sizes AS (
        SELECT split, tenant, query_id,
               sum(strlen(positive) + coalesce(list_sum(list_transform(negatives, lambda t: strlen(t))), 0)) AS size
        FROM triplets GROUP BY split, tenant, query_id
    )
    SELECT split, tenant, query_id,
           CAST(sum(size) OVER (ORDER BY split, tenant, query_id ROWS UNBOUNDED PRECEDING) // {size} AS BIGINT) AS block
    FROM sizes
"""

# The queries of a block. A negative with the id or the text of a positive of its query is omitted.
_CREATE_GROUPED_QUERIES = """
    CREATE OR REPLACE TEMP TABLE grouped_queries AS
    WITH block AS (
        SELECT t.* FROM triplets t JOIN query_blocks b USING (split, tenant, query_id)
        WHERE split = $split AND block = $block
    ), positives AS (
        SELECT tenant, query_id, positive_id AS id, max(positive) AS text, max(positive_score) AS score
        FROM block GROUP BY tenant, query_id, positive_id
    ), block_negatives AS (
        SELECT tenant, query_id, unnest(negative_ids) AS id, unnest(negatives) AS text,
               unnest(negative_scores) AS score, generate_subscripts(negative_ids, 1) AS place
        FROM block
    ), negatives AS (
        SELECT tenant, query_id, id, max(text) AS text, max(score) AS score, min(place) AS place
        FROM block_negatives
        ANTI JOIN positives USING (tenant, query_id, id)
        ANTI JOIN positives AS same_text USING (tenant, query_id, text)
        GROUP BY tenant, query_id, id
    ), queries AS (
        SELECT tenant, query_id, max(query) AS query FROM block GROUP BY tenant, query_id
    ), positive_lists AS (
        SELECT tenant, query_id,
               list({'id': id, 'text': text, 'score': score} ORDER BY score DESC NULLS LAST, id) AS positives
        FROM positives GROUP BY tenant, query_id
    ), negative_lists AS (
        SELECT tenant, query_id,
               list({'id': id, 'text': text, 'score': score} ORDER BY score DESC NULLS LAST, place, id) AS negatives
        FROM negatives GROUP BY tenant, query_id
    )
    SELECT tenant, query_id, query, positives, coalesce(negatives, []) AS negatives
    FROM queries JOIN positive_lists USING (tenant, query_id) LEFT JOIN negative_lists USING (tenant, query_id)
"""


def group_triplets(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Create the table `grouped_queries` for one block of queries after the other, ordered by split, tenant and query.

    Columns: tenant, query_id, query, positives and negatives; the last two are lists of {id, text, score}, negatives
    may be empty. Rows are unordered.

    Yields:
        The split that the block belongs to.

    Raises:
        ExportError: no query has a negative; raised at the end.
    """
    connection.execute(_CREATE_QUERY_BLOCKS.format(size=BYTES_PER_BLOCK))
    blocks = connection.execute("SELECT DISTINCT split, block FROM query_blocks ORDER BY split, block").fetchall()
    has_negative = False
    for split, block in blocks:
        connection.execute(_CREATE_GROUPED_QUERIES, {"split": split, "block": block})
        has_negative = has_negative or any_row(connection, "FROM grouped_queries WHERE len(negatives) > 0")
        yield split
    if not has_negative:
        raise ExportError("every negative is also a positive of its query; check the table `triplets`")


def n_without_negative(connection: duckdb.DuckDBPyConnection) -> int:
    """Number of queries in `grouped_queries` without negatives."""
    count: int = connection.execute("SELECT count(*) FROM grouped_queries WHERE len(negatives) = 0").fetchall()[0][0]
    return count
