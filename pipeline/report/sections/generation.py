"""Generated queries: what became of them, how like real ones they are, and which documents nobody reached."""

from darklode.pipeline.report.figure import Figure, FigureSection, sql_source

OUTCOMES = """
    SELECT coalesce(reason, 'kept') AS outcome, count(*) AS queries,
           count(*) / sum(count(*)) OVER () AS share
    FROM generated_queries GROUP BY outcome ORDER BY outcome <> 'kept', queries DESC, outcome
"""
CHECK = "SELECT tenant, measure, real, generated FROM generation_check"
CLUSTERS = """
    SELECT tenant, "group" AS cluster, queries, similarity, g.text AS nearest_generated, covered
    FROM generation_clusters LEFT JOIN generated_queries g USING (tenant, query_id)
    ORDER BY covered, similarity, tenant, "group"
"""
REACHED = """
    WITH written AS (
        SELECT tenant, doc_id, bool_or(kept) AS has_one FROM generated_queries
        JOIN generation_texts USING (tenant, chunk_id) GROUP BY tenant, doc_id
    )
    SELECT tenant, count(*) AS documents, count(*) FILTER (reached) AS reached_by_a_real_query,
           count(*) FILTER (NOT reached) AS never_reached,
           count(*) FILTER (NOT reached AND has_one) AS now_with_a_generated_query
    FROM generation_documents LEFT JOIN written USING (tenant, doc_id) GROUP BY tenant ORDER BY tenant
"""
NEVER = """
    SELECT tenant, doc_id AS document, title, texts FROM generation_documents WHERE NOT reached
    ORDER BY texts DESC, tenant, doc_id
"""


SECTION = FigureSection(
    "generating",
    "Generated queries",
    (
        Figure(
            "generated-outcomes",
            "What became of them",
            "Each goes by the first filter that it does not pass; what is kept is learned from, and never tested by.",
            sql_source(OUTCOMES),
            needs=("generated_queries",),
        ),
        Figure(
            "generated-likeness",
            "Like real queries",
            "Real are the run's train queries; a cluster is covered where a generated query is as near to one of its "
            "queries as real ones of two clusters usually are.",
            sql_source(CHECK),
            needs=("generation_check",),
            wide=True,
        ),
        Figure(
            "generated-clusters",
            "Clusters of real queries, those far from every generated one first",
            "Similarity is a cosine of letters, 1 being the same text.",
            sql_source(CLUSTERS),
            needs=("generation_clusters", "generated_queries"),
            wide=True,
        ),
        Figure(
            "generated-reached",
            "Documents that queries reach",
            "A real query reaches a document where one of its texts is labelled as relevant for it.",
            sql_source(REACHED),
            needs=("generation_documents", "generation_texts", "generated_queries"),
        ),
        Figure(
            "generated-never",
            "Documents that no real query ever reached",
            "Those with most texts first; all of them are in the table generation_documents.",
            sql_source(NEVER),
            needs=("generation_documents",),
            wide=True,
        ),
    ),
    of_labels=True,
)
