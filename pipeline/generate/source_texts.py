"""Choose the texts to generate queries for, and copy the run's real queries for comparison."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.generate.port import ID_PREFIX
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.generation_tables import GENERATION_DOCUMENTS, GENERATION_TEXTS, REAL_QUERIES
from darklode.schemas.tables import TABLES

TEXTS_STAGE = Stage(
    "generation_texts", 3, (), ("chunks", REAL_QUERIES.name, GENERATION_DOCUMENTS.name, GENERATION_TEXTS.name)
)

# The two queries below read `labels`, the labels of real queries, which `sample_texts` registers.
# Round-robin over documents: one text of each, then a second one, and so on; documents without a positive first.
# Duplicate texts count once.
SAMPLED_TEXTS_SQL = """
    WITH answering_documents AS (
        SELECT DISTINCT doc_id FROM labels JOIN chunks c ON c.chunk_id = labels.text_id
        WHERE relevance > 0 AND c.tenant = $tenant
    ), distinct_texts AS (
        SELECT chunk_id, doc_id, doc_id IN (FROM answering_documents) AS reached,
               md5_number_lower(concat($seed, ' ', content_hash)) AS draw
        FROM chunks WHERE tenant = $tenant
        QUALIFY row_number() OVER (PARTITION BY content_hash ORDER BY chunk_id) = 1
    ), ranked_texts AS (
        SELECT *, row_number() OVER (PARTITION BY doc_id ORDER BY draw, chunk_id) AS round FROM distinct_texts
    )
    SELECT CAST($tenant AS VARCHAR) AS tenant, chunk_id, doc_id, reached FROM ranked_texts
    ORDER BY reached, round, draw, chunk_id LIMIT $texts
"""

# Documents with their number of texts, and whether one of their texts is a positive ("reached").
DOCUMENTS_SQL = """
    SELECT CAST($tenant AS VARCHAR) AS tenant, doc_id, min(title) AS title, count(*) AS texts,
           bool_or(chunk_id IN (SELECT text_id FROM labels WHERE relevance > 0)) AS reached
    FROM chunks WHERE tenant = $tenant GROUP BY doc_id ORDER BY doc_id
"""


def sample_texts(source: TrainingSource, output: Output, *, max_texts: int, seed: int) -> None:
    """Choose texts at random, round-robin over documents, documents without a positive first.

    Generated queries in the run do not count as real queries.

    Args:
        source: a build, or a mined run.
        output: receives `chunks` of the run, `real_queries`, `generation_documents` and `generation_texts`.
        max_texts: maximum number of texts per tenant.
        seed: seed of the sample.

    Raises:
        ArtifactError: the run has no triplets, so there are no real queries.
    """
    tenants = source.tenants()
    if not tenants:
        raise ArtifactError(
            "the run has no triplets, so there are no real queries to compare with; run build or mine first"
        )
    for tenant in tenants:
        for rows in source.texts(tenant):
            output.write("chunks", TABLES["chunks"].rows({name: rows[name] for name in rows.column_names}))
        real_queries = _real_queries(source.queries(tenant))
        tenant_queries = real_queries.append_column("tenant", pa.repeat(tenant, real_queries.num_rows))
        output.write(REAL_QUERIES.name, tenant_queries.select(REAL_QUERIES.schema.names).cast(REAL_QUERIES.schema))
    chunk_tables = output.current_tables("chunks")
    n_sampled = 0
    for tenant in tenants:
        with chunk_tables.connect() as connection:
            connection.register("labels", _real_queries(source.labels(tenant)))
            documents = connection.sql(DOCUMENTS_SQL, params={"tenant": tenant}).to_arrow_table()
            parameters = {"tenant": tenant, "seed": str(seed), "texts": max_texts}
            sampled = connection.sql(SAMPLED_TEXTS_SQL, params=parameters).to_arrow_table()
        n_sampled += sampled.num_rows
        output.write(GENERATION_DOCUMENTS.name, documents.cast(GENERATION_DOCUMENTS.schema))
        output.write(GENERATION_TEXTS.name, sampled.cast(GENERATION_TEXTS.schema))
    total = chunk_tables.rows("chunks")
    drop_counts = {"not sampled": total - n_sampled} if total > n_sampled else {}
    output.count(FunnelStep(TEXTS_STAGE.name, "texts", total, "texts to write for", n_sampled, drop_counts))


def _real_queries(rows: pa.Table) -> pa.Table:
    """Rows of queries that were not generated."""
    return rows.filter(pc.invert(pc.starts_with(rows["query_id"], ID_PREFIX)))
