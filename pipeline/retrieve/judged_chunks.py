"""The stage `judged_chunks`: relevance judgments of documents and chunks, by chunk."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks, tenants
from darklode.pipeline.retrieve.best_chunks import best_chunks
from darklode.schemas.label_tables import JUDGED_CHUNKS

JUDGED_CHUNKS_STAGE = Stage("judged_chunks", 1, ("queries", "chunks", "judgments"), ("judged_chunks",))

RELEVANT_DOCUMENTS_SQL = """
    SELECT query_id, any_value(q.text) AS text, list(item_id ORDER BY item_id) AS documents
    FROM judgments JOIN queries q USING (tenant, query_id)
    WHERE tenant = $tenant AND level = 'document' AND relevance > 0 GROUP BY query_id ORDER BY query_id
"""

# A judgment of a chunk counts more than one of its document.
JUDGED_CHUNKS_SQL = """
    WITH judged AS (FROM judgments SEMI JOIN queries USING (tenant, query_id) WHERE tenant = $tenant),
    of_documents AS (
        SELECT j.query_id, c.chunk_id,
               CASE WHEN j.relevance = 0 OR b.chunk_id IS NOT NULL THEN j.relevance END AS relevance
        FROM judged j JOIN chunks c ON c.tenant = $tenant AND c.doc_id = j.item_id
        LEFT JOIN best_chunks b ON b.query_id = j.query_id AND b.chunk_id = c.chunk_id
        WHERE level = 'document'
    ), of_chunks AS (SELECT query_id, item_id AS chunk_id, relevance FROM judged WHERE level = 'chunk')
    SELECT * FROM of_chunks UNION ALL SELECT * FROM of_documents ANTI JOIN of_chunks USING (query_id, chunk_id)
    ORDER BY query_id, chunk_id
"""

COUNTS_SQL = """
    SELECT count(*) AS n, count(*) FILTER (q.query_id IS NULL) AS without_query
    FROM judgments LEFT JOIN queries q USING (tenant, query_id)
"""


def judged_chunks(tables: Tables, output: Output) -> None:
    """Write the judged chunks of the run's queries.

    Of a document that is not relevant, no chunk is. Of a relevant one, the chunk with the highest BM25 score for the
    query gets its grade; the relevance of the others is unknown.

    Args:
        tables: must contain `queries`, `chunks` and `judgments`.
        output: receives `judged_chunks`, one part per tenant.
    """
    n_written = n_unknown = 0
    with tables.connect() as connection:
        for tenant in tenants(tables, "judgments"):
            connection.register("best_chunks", _best_chunks(connection, TenantChunks(tables, tenant)))
            rows = connection.sql(JUDGED_CHUNKS_SQL, params={"tenant": tenant}).to_arrow_table()
            columns = {name: rows[name] for name in rows.column_names}
            columns["relevance"] = rows["relevance"].cast(pa.int32())
            output.write("judged_chunks", JUDGED_CHUNKS.rows(columns | {"tenant": pa.repeat(tenant, rows.num_rows)}))
            n_written += rows.num_rows
            n_unknown += rows["relevance"].null_count
        counts = connection.sql(COUNTS_SQL).to_arrow_table().to_pylist()[0]
    dropped = {"the query was dropped": counts["without_query"]} if counts["without_query"] else {}
    output.count(FunnelStep("judged_chunks", "judgments", counts["n"], "chunks", n_written, dropped))
    output.facts["unknown"] = n_unknown


def _best_chunks(connection: duckdb.DuckDBPyConnection, chunks: TenantChunks) -> pa.Table:
    """Query and chunk ids of the best chunk of each relevant document."""
    rows = connection.sql(RELEVANT_DOCUMENTS_SQL, params={"tenant": chunks.tenant}).to_arrow_table()
    chunk_numbers = (
        best_chunks(rows["text"].to_pylist(), rows["documents"].to_pylist(), chunks) if rows.num_rows else []
    )
    numbers = np.concatenate([np.empty(0, np.int64), *chunk_numbers])
    query_ids = rows["query_id"].take(
        pa.array(np.repeat(np.arange(rows.num_rows), [len(each) for each in chunk_numbers]))
    )
    has_chunks = numbers >= 0
    return pa.table(
        {
            "query_id": query_ids.filter(pa.array(has_chunks)),
            "chunk_id": chunks.chunk_ids.take(pa.array(numbers[has_chunks])),
        }
    )
