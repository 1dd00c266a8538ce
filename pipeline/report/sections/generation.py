"""Report section of generated queries."""

from darklode.pipeline.report.figure import Figure, FigureSection, sql_source

OUTCOMES_SQL = """
    SELECT coalesce(reason, 'kept') AS outcome, count(*) AS queries,
           count(*) / sum(count(*)) OVER () AS share
    FROM generated_queries GROUP BY outcome ORDER BY outcome <> 'kept', queries DESC, outcome
"""
REALISM_SQL = "SELECT tenant, measure, real, generated FROM generation_check"
CLUSTER_COVERAGE_SQL = """
    SELECT tenant, "group" AS cluster, queries, similarity, g.text AS nearest_generated, covered
    FROM generation_clusters LEFT JOIN generated_queries g USING (tenant, query_id)
    ORDER BY covered, similarity, tenant, "group"
"""
DOCUMENT_COVERAGE_SQL = """
    WITH query_documents AS (
        SELECT tenant, doc_id, bool_or(kept) AS has_kept_query FROM generated_queries
        JOIN generation_texts USING (tenant, chunk_id) GROUP BY tenant, doc_id
    )
    SELECT tenant, count(*) AS documents, count(*) FILTER (reached) AS covered_by_real_queries,
           count(*) FILTER (NOT reached) AS not_covered,
           count(*) FILTER (NOT reached AND has_kept_query) AS newly_covered
    FROM generation_documents LEFT JOIN query_documents USING (tenant, doc_id) GROUP BY tenant ORDER BY tenant
"""
UNCOVERED_DOCUMENTS_SQL = """
    SELECT tenant, doc_id AS document, title, texts FROM generation_documents WHERE NOT reached
    ORDER BY texts DESC, tenant, doc_id
"""


SECTION = FigureSection(
    "generating",
    "Generated queries",
    (
        Figure(
            "generated-outcomes",
            "Outcomes",
            "Each query is dropped by the first filter it fails. Kept queries are used for training only, never for "
            "testing.",
            sql_source(OUTCOMES_SQL),
            needs=("generated_queries",),
        ),
        Figure(
            "generated-likeness",
            "Comparison with real queries",
            "Real queries are the run's train queries. A cluster is covered if a generated query is at least as "
            "similar to one of its queries as real queries of two different clusters usually are.",
            sql_source(REALISM_SQL),
            needs=("generation_check",),
            wide=True,
        ),
        Figure(
            "generated-clusters",
            "Clusters of real queries, least similar to generated queries first",
            "Similarity is the cosine of character n-grams; 1 means the same text.",
            sql_source(CLUSTER_COVERAGE_SQL),
            needs=("generation_clusters", "generated_queries"),
            wide=True,
        ),
        Figure(
            "generated-reached",
            "Document coverage",
            "A query covers a document if one of the document's texts is labelled relevant for it.",
            sql_source(DOCUMENT_COVERAGE_SQL),
            needs=("generation_documents", "generation_texts", "generated_queries"),
        ),
        Figure(
            "generated-never",
            "Documents not covered by real queries",
            "Documents with the most texts first; the table generation_documents has all.",
            sql_source(UNCOVERED_DOCUMENTS_SQL),
            needs=("generation_documents",),
            wide=True,
        ),
    ),
    of_labels=True,
)
