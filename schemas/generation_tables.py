"""Tables of `generate` besides those shared with a build."""

import pyarrow as pa

from darklode.schemas.table import TENANT, Table, column

_ID = column("query_id", pa.string(), "hash of tenant, text and source")
_OF = column("chunk_id", pa.string(), "source text of the query")

GENERATION_TEXTS = Table(
    "generation_texts",
    ("tenant", "chunk_id"),
    "source texts of the generated queries",
    pa.schema(
        [
            TENANT,
            column("chunk_id", pa.string(), "chunk_id of a build, doc_id of a mined run"),
            column("doc_id", pa.string(), "document of the text"),
            column("reached", pa.bool_(), "true if a real query has a positive in the document"),
        ]
    ),
)

GENERATION_DOCUMENTS = Table(
    "generation_documents",
    ("tenant", "doc_id"),
    "documents of the run, and whether real queries reach them",
    pa.schema(
        [
            TENANT,
            column("doc_id", pa.string(), "id in the run"),
            column("title", pa.string(), "title of one of its texts", null=True),
            column("texts", pa.int64(), "number of its texts"),
            column("reached", pa.bool_(), "true if a real query has a positive in it"),
        ]
    ),
)

REAL_QUERIES = Table(
    "real_queries",
    ("tenant", "query_id"),
    "queries of the run, for comparison with generated ones",
    pa.schema(
        [
            TENANT,
            column("query_id", pa.string(), "id in the run"),
            column("text", pa.string(), "text of the query"),
            column("group", pa.string(), "cluster of near-duplicates"),
            column("split", pa.string(), "train, validation or test"),
        ]
    ),
)

WRITTEN_QUERIES = Table(
    "written_queries",
    ("tenant", "query_id"),
    "generated queries before filtering",
    pa.schema(
        [
            TENANT,
            _ID,
            _OF,
            column("text", pa.string(), "text of the query; null if the reply could not be parsed", null=True),
            column("error", pa.string(), "reason for a missing query", null=True),
            column(
                "self_contained",
                pa.bool_(),
                "true if the generator rates it understandable without the text",
                null=True,
            ),
        ]
    ),
)

FILTERED_QUERIES = Table(
    "filtered_queries",
    ("tenant", "query_id"),
    "generated queries with the filter that rejected them, before retrieval",
    pa.schema([TENANT, _ID, column("reason", pa.string(), "reason of the rejection; null if kept", null=True)]),
)

GENERATED_QUERIES = Table(
    "generated_queries",
    ("tenant", "query_id"),
    "generated queries and their outcome",
    pa.schema(
        [
            TENANT,
            _ID,
            _OF,
            column("text", pa.string(), "text of the query; null if the reply could not be parsed", null=True),
            column("source", pa.string(), "kind of generator"),
            column("generator_id", pa.string(), "id of everything that can change the output: model, prompt, settings"),
            column(
                "round_trip_rank",
                pa.int32(),
                "best rank of the source text in any retriever; null if not retrieved",
                null=True,
            ),
            column("judged", pa.bool_(), "true if the source text is judged relevant; null if not judged", null=True),
            column("kept", pa.bool_(), "true if it is training data"),
            column("reason", pa.string(), "reason for rejection", null=True),
        ]
    ),
)

GENERATION_CHECK = Table(
    "generation_check",
    ("tenant", "measure"),
    "similarity of generated and real queries",
    pa.schema(
        [
            TENANT,
            column("measure", pa.string(), "measure"),
            column("real", pa.float64(), "value for real train queries; null if the measure compares both", null=True),
            column("generated", pa.float64(), "value for kept generated queries; null if too few", null=True),
        ]
    ),
)

GENERATION_CLUSTERS = Table(
    "generation_clusters",
    ("tenant", "group"),
    "coverage of clusters of real train queries by generated ones; samples of at most 5,000 queries",
    pa.schema(
        [
            TENANT,
            column("group", pa.string(), "cluster id"),
            column("queries", pa.int64(), "real queries of the cluster in the sample"),
            column("query_id", pa.string(), "generated query nearest to one of them", null=True),
            column(
                "similarity", pa.float64(), "cosine of character n-grams, 0 to 1; null if nothing is kept", null=True
            ),
            column(
                "covered",
                pa.bool_(),
                "true if at least as similar as real queries of other clusters usually are; null without any",
                null=True,
            ),
        ]
    ),
)

GENERATION_SATURATION = Table(
    "generation_saturation",
    ("tenant", "queries"),
    "clusters of similar kept queries after each batch, and estimates of what more queries would add",
    pa.schema(
        [
            TENANT,
            column("queries", pa.int64(), "kept queries up to here"),
            column("clusters", pa.int64(), "clusters of similar queries among them"),
            column("unseen", pa.float64(), "estimated lower bound of the clusters not seen yet (Chao 1)"),
            column("new_share", pa.float64(), "expected share of the next queries in a new cluster (Good-Turing)"),
            column("repeated_share", pa.float64(), "share of the last batch in a cluster that was known before it"),
            column("doubling", pa.float64(), "expected number of new clusters among as many queries again"),
            column(
                "evenness",
                pa.float64(),
                "entropy of the queries over clusters divided by its maximum, 0 to 1",
                null=True,
            ),
        ]
    ),
)

GENERATION_TABLES = (
    GENERATION_TEXTS,
    GENERATION_DOCUMENTS,
    REAL_QUERIES,
    WRITTEN_QUERIES,
    FILTERED_QUERIES,
    GENERATED_QUERIES,
    GENERATION_CHECK,
    GENERATION_CLUSTERS,
    GENERATION_SATURATION,
)
