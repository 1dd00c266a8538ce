"""Test queries with a positive, their labels, and the texts to search.

For a build: the test split, its qrels and the chunks. For a mined run: the queries of the test period, their paired
documents, and the documents of the test pool.
"""

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.tables import TABLES

WRITES = ("test_queries", "test_labels", "test_texts")
BUILD_STAGE = Stage("test_queries", 2, ("queries", "qrels", "held_out"), WRITES)
LOG_STAGE = Stage("test_queries", 1, ("mined_test", "mined_test_pool", "query_clusters", "documents"), WRITES)

ROWS_PER_WRITE = 1 << 16

BUILD_QUERIES_SQL = """
    SELECT q.tenant, q.query_id, q.text, CAST(q.cluster_id AS VARCHAR) AS "group",
           CAST(NULL AS VARCHAR) AS kind, h.shares_positive
    FROM queries q JOIN held_out h USING (tenant, query_id, split)
    WHERE split = 'test' ORDER BY q.tenant, q.query_id
"""

BUILD_LABELS_SQL = """
    SELECT tenant, query_id, chunk_id AS text_id, relevance FROM qrels SEMI JOIN test_queries USING (tenant, query_id)
    ORDER BY tenant, query_id, text_id
"""

LOG_QUERIES_SQL = """
    SELECT tenant, query_id, min(query) AS text, min(coalesce(cluster_id, query_id)) AS "group", min(kind) AS kind,
           bool_or(shares_positive) AS shares_positive
    FROM mined_test LEFT JOIN query_clusters USING (tenant, query_id)
    GROUP BY tenant, query_id ORDER BY tenant, query_id
"""

LOG_LABELS_SQL = """
    SELECT DISTINCT tenant, query_id, doc_id AS text_id, CAST(1 AS INTEGER) AS relevance FROM mined_test
    ORDER BY tenant, query_id, text_id
"""

# The same hash as in `chunks`, so that equal texts share cached vectors.
DOCUMENTS_AS_CHUNKS_SQL = """
    WITH document_texts AS (SELECT tenant, doc_id, title, left(text, $characters) AS text FROM documents {row_filter})
    SELECT tenant, doc_id AS chunk_id, doc_id, CAST(0 AS INTEGER) AS position, CAST(0 AS INTEGER) AS start,
           CAST(length(text) AS INTEGER) AS end, text, title, CAST(NULL AS VARCHAR) AS heading,
           left(sha256(concat(coalesce(title, ''), chr(0), chr(0), text)), 32) AS content_hash
    FROM document_texts ORDER BY tenant, doc_id
"""

LOG_TEXTS_SQL = DOCUMENTS_AS_CHUNKS_SQL.format(row_filter="SEMI JOIN mined_test_pool USING (tenant, doc_id)")


def of_a_build(tables: Tables, output: Output) -> None:
    """Write the test split's queries and labels; queries that share a positive with training are marked.

    Args:
        tables: must contain `queries`, `qrels` and `held_out`.
        output: receives `test_queries` and `test_labels`; `test_texts` stays empty.

    Raises:
        ArtifactError: no query of the test split has a positive.
    """
    with tables.connect() as connection:
        queries = connection.sql(BUILD_QUERIES_SQL).to_arrow_table().cast(TABLES["test_queries"].schema)
        connection.register("test_queries", queries)
        labels = connection.sql(BUILD_LABELS_SQL).to_arrow_table().cast(TABLES["test_labels"].schema)
        held_out = connection.sql("SELECT count(*) FROM queries WHERE split = 'test'").fetchall()[0][0]
    if not queries.num_rows:
        raise ArtifactError(f"{tables.url} has no test query with a positive; raise split.test_share and build again")
    output.write("test_queries", queries)
    output.write("test_labels", labels)
    unanswered = held_out - queries.num_rows
    dropped = {"no positive found": unanswered} if unanswered else {}
    output.count(FunnelStep("test_queries", "queries", held_out, "queries", queries.num_rows, dropped))


def of_a_log(tables: Tables, output: Output, *, text_characters: int) -> None:
    """Write the queries and labels of the test period, and the documents of its pool as triplets show them.

    Args:
        tables: must contain `mined_test`, `mined_test_pool`, `query_clusters` and `documents`.
        output: receives `test_queries`, `test_labels` and `test_texts`.
        text_characters: length of a document's text after its title.

    Raises:
        ArtifactError: the run was mined without a test period.

    Source: ScalingNote, 4.1.2.
    """
    if not tables.rows("mined_test"):
        raise ArtifactError(f"{tables.url} has no test set; mine it with --test-from DAY")
    queries = tables.sql(LOG_QUERIES_SQL).cast(TABLES["test_queries"].schema)
    output.write("test_queries", queries)
    output.write("test_labels", tables.sql(LOG_LABELS_SQL).cast(TABLES["test_labels"].schema))
    for rows in tables.stream(LOG_TEXTS_SQL, {"characters": text_characters}, ROWS_PER_WRITE):
        output.write("test_texts", rows.cast(TABLES["test_texts"].schema))
    output.count(FunnelStep("test_queries", "labels", tables.rows("mined_test"), "test queries", queries.num_rows))
