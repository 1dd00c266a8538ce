"""The tables of `generate`, beside those that it shares with a build."""

import pyarrow as pa

from darklode.schemas.table import TENANT, Table, field

_ID = field("query_id", pa.string(), "by tenant, text and source")
_OF = field("chunk_id", pa.string(), "the text that the query is written for")

GENERATION_TEXTS = Table(
    "generation_texts",
    ("tenant", "chunk_id"),
    "the texts that queries are written for",
    pa.schema(
        [
            TENANT,
            field("chunk_id", pa.string(), "chunk_id of a build, doc_id of a mined run"),
            field("doc_id", pa.string(), "the document it is of"),
            field("reached", pa.bool_(), "whether a real query has a positive in the document"),
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
            field("doc_id", pa.string(), "the run's"),
            field("title", pa.string(), "of one of its texts", null=True),
            field("texts", pa.int64(), "that it has"),
            field("reached", pa.bool_(), "whether a real query has a positive in it"),
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
            field("query_id", pa.string(), "the run's"),
            field("text", pa.string(), "the query"),
            field("group", pa.string(), "its cluster"),
            field("split", pa.string(), "train, validation or test"),
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
            field("text", pa.string(), "the query; null: none could be read", null=True),
            field("error", pa.string(), "why there is none", null=True),
            field(
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
    pa.schema([TENANT, _ID, field("reason", pa.string(), "why it goes; null: it stays", null=True)]),
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
            field("text", pa.string(), "the query; null: none could be read", null=True),
            field("source", pa.string(), "the kind of writer"),
            field("generator_id", pa.string(), "model, prompt and settings: all that can change what it writes"),
            field("round_trip_rank", pa.int32(), "the text's best rank by a retriever; null: none", null=True),
            field("judged", pa.bool_(), "whether the judge finds its text relevant; null: not asked", null=True),
            field("kept", pa.bool_(), "whether it is learned from"),
            field("reason", pa.string(), "why not", null=True),
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
            field("measure", pa.string(), "what is compared"),
            field("real", pa.float64(), "of the real train queries; null: it is of both", null=True),
            field("generated", pa.float64(), "of the generated ones that are kept; null: there are too few", null=True),
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
            field("group", pa.string(), "the cluster"),
            field("queries", pa.int64(), "real ones of it that were compared"),
            field("query_id", pa.string(), "the generated query that is nearest to one of them", null=True),
            field("similarity", pa.float64(), "how near: cosine of letters, 0 to 1; null: nothing is kept", null=True),
            field(
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
