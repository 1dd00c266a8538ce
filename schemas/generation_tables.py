"""The tables of `generate`, beside those that it shares with a build."""

import pyarrow as pa

from darklode.schemas.table import TENANT, Table, column

_ID = column("query_id", pa.string(), "by tenant, text and source")
_OF = column("chunk_id", pa.string(), "the text that the query is written for")

GENERATION_TEXTS = Table(
    "generation_texts",
    ("tenant", "chunk_id"),
    "the texts that queries are written for",
    pa.schema(
        [
            TENANT,
            column("chunk_id", pa.string(), "chunk_id of a build, doc_id of a mined run"),
            column("doc_id", pa.string(), "the document it is of"),
            column("reached", pa.bool_(), "whether a real query has a positive in the document"),
        ]
    ),
)

GENERATION_DOCUMENTS = Table(
    "generation_documents",
    ("tenant", "doc_id"),
    "the run's documents, and which of them no real query reached",
    pa.schema(
        [
            TENANT,
            column("doc_id", pa.string(), "the run's"),
            column("title", pa.string(), "of one of its texts", null=True),
            column("texts", pa.int64(), "that it has"),
            column("reached", pa.bool_(), "whether a real query has a positive in it"),
        ]
    ),
)

REAL_QUERIES = Table(
    "real_queries",
    ("tenant", "query_id"),
    "the run's own queries: what generated ones are held against",
    pa.schema(
        [
            TENANT,
            column("query_id", pa.string(), "the run's"),
            column("text", pa.string(), "the query"),
            column("group", pa.string(), "its cluster"),
            column("split", pa.string(), "train, validation or test"),
        ]
    ),
)

WRITTEN_QUERIES = Table(
    "written_queries",
    ("tenant", "query_id"),
    "what was written, before anything is left out",
    pa.schema(
        [
            TENANT,
            _ID,
            _OF,
            column("text", pa.string(), "the query; null: none could be read", null=True),
            column("error", pa.string(), "why there is none", null=True),
            column(
                "self_contained",
                pa.bool_(),
                "whether its writer says that it can be understood without the text",
                null=True,
            ),
        ]
    ),
)

SIEVED_QUERIES = Table(
    "sieved_queries",
    ("tenant", "query_id"),
    "what was written, and why it goes before any retriever is asked",
    pa.schema([TENANT, _ID, column("reason", pa.string(), "why it goes; null: it stays", null=True)]),
)

GENERATED_QUERIES = Table(
    "generated_queries",
    ("tenant", "query_id"),
    "generated queries with what became of them",
    pa.schema(
        [
            TENANT,
            _ID,
            _OF,
            column("text", pa.string(), "the query; null: none could be read", null=True),
            column("source", pa.string(), "the kind of writer"),
            column("generator_id", pa.string(), "model, prompt and settings: all that can change what it writes"),
            column("round_trip_rank", pa.int32(), "the text's best rank by a retriever; null: none", null=True),
            column("judged", pa.bool_(), "whether the judge finds its text relevant; null: not asked", null=True),
            column("kept", pa.bool_(), "whether it is learned from"),
            column("reason", pa.string(), "why not", null=True),
        ]
    ),
)

GENERATION_CHECK = Table(
    "generation_check",
    ("tenant", "measure"),
    "how generated queries are like real ones",
    pa.schema(
        [
            TENANT,
            column("measure", pa.string(), "what is compared"),
            column("real", pa.float64(), "of the real train queries; null: it is of both", null=True),
            column(
                "generated", pa.float64(), "of the generated ones that are kept; null: there are too few", null=True
            ),
        ]
    ),
)

GENERATION_CLUSTERS = Table(
    "generation_clusters",
    ("tenant", "group"),
    "clusters of real train queries, and whether generated ones ask for the like; of 5,000 queries of each at most",
    pa.schema(
        [
            TENANT,
            column("group", pa.string(), "the cluster"),
            column("queries", pa.int64(), "real ones of it that were compared"),
            column("query_id", pa.string(), "the generated query that is nearest to one of them", null=True),
            column("similarity", pa.float64(), "how near: cosine of letters, 0 to 1; null: nothing is kept", null=True),
            column(
                "covered",
                pa.bool_(),
                "whether that is as near as real ones of other clusters usually are; null: there is no other",
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
    SIEVED_QUERIES,
    GENERATED_QUERIES,
    GENERATION_CHECK,
    GENERATION_CLUSTERS,
)
