"""All tables that Darklode writes: Arrow schema, key, and a description of each column.

A nullable column is null if the value is unknown, never 0 or "". Ids are unique within a tenant only.
"""

import pyarrow as pa

from darklode.schemas.day_tables import DAY_TABLES
from darklode.schemas.evaluation_tables import AUDIT_OVERLAP, AUDIT_RETRIEVERS, CORRECTED_AUDIT, EVALUATION_TABLES
from darklode.schemas.generation_tables import GENERATION_TABLES
from darklode.schemas.label_tables import LABEL_TABLES
from darklode.schemas.law_tables import TRAINING_TABLES
from darklode.schemas.mined_tables import MINED_TABLES
from darklode.schemas.probe_tables import PROBE_TABLES
from darklode.schemas.review_tables import CALIBRATION, HUMAN_LABELS, RELIABILITY, REVIEW_TABLES
from darklode.schemas.serving_tables import SERVING_TABLES
from darklode.schemas.table import CHUNK_ID, QUERY_ID, STRINGS, TENANT, Table, column

DOCUMENTS = Table(
    "documents",
    ("tenant", "doc_id"),
    "documents as read from the source",
    pa.schema(
        [
            TENANT,
            column("doc_id", pa.string(), "id from the source, or the path relative to the source folder"),
            column("title", pa.string(), "title, if the source has one", null=True),
            column("topic", pa.string(), "topic, if the source has one", null=True),
            column("text", pa.string(), "full text; HTML is converted to Markdown"),
            column("url", pa.string(), "public URL, if the source has one", null=True),
            column("source", pa.string(), "file that the document was read from"),
            column("content_hash", pa.string(), "SHA-256 of title and text, 32 hex digits"),
        ]
    ),
)

CHUNKS = Table(
    "chunks",
    ("tenant", "chunk_id"),
    "document chunks of at most `chunk.size` characters: the unit of retrieval and judging",
    pa.schema(
        [
            TENANT,
            column(
                "chunk_id", pa.string(), "doc_id#hash of the text: stable as long as document and text are unchanged"
            ),
            column("doc_id", pa.string(), "document of the chunk"),
            column("position", pa.int32(), "index among the document's chunks, from 0"),
            column("start", pa.int32(), "character offset of the start in documents.text"),
            column("end", pa.int32(), "character offset of the end: text = documents.text[start:end]"),
            column("text", pa.string(), "text of the chunk"),
            column("title", pa.string(), "title of the document", null=True),
            column("heading", pa.string(), "headings above the chunk, outermost first, joined by ' › '", null=True),
            column("content_hash", pa.string(), "SHA-256 of title, heading and text, 32 hex digits"),
        ]
    ),
)

TEST_TEXTS = Table(
    "test_texts",
    CHUNKS.key,
    "documents that the test queries of a mined run search (`mined_test_pool`), one row each; empty for a build",
    CHUNKS.schema,
)

MANUAL_TEXTS = Table(
    "manual_texts", CHUNKS.key, "documents of `manual_labels`, one row each; chunk_id is their text_id", CHUNKS.schema
)

RAW_QUERIES = Table(
    "raw_queries",
    ("tenant", "query_id"),
    "query log as read from the source",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("text", pa.string(), "query text as typed"),
            column("timestamp", pa.timestamp("us", tz="UTC"), "time of the query", null=True),
            column("count", pa.int64(), "number of occurrences that the row stands for; 1 in a plain log"),
        ]
    ),
)

_CLEANED = [
    TENANT,
    QUERY_ID,
    column("text", pa.string(), "query text, trimmed; personal data masked if `clean.mask_personal_data`"),
    column(
        "n_words", pa.int32(), "number of words: split at white space, or by ICU dictionaries in scripts without spaces"
    ),
    column("language", pa.string(), "most probable language, ISO 639 code (fastText lid.176)"),
    column("language_score", pa.float32(), "probability of that language, 0 to 1"),
    column("cluster_id", pa.int32(), "k-means cluster within the tenant"),
    column(
        "n_represented",
        pa.int64(),
        "raw queries it represents: itself, its duplicates, and queries with the same wording",
    ),
]

CLEANED_QUERIES = Table(
    "cleaned_queries",
    ("tenant", "query_id"),
    "queries that passed cleaning, before the split",
    pa.schema(_CLEANED),
)

QUERIES = Table(
    "queries",
    ("tenant", "query_id"),
    "queries of the benchmark",
    pa.schema([*_CLEANED, column("split", pa.string(), "train, validation or test")]),
)

REJECTS = Table(
    "rejects",
    (),
    "every row that a stage dropped or could not read, with the reason",
    pa.schema(
        [
            column("table", pa.string(), "table that the row was meant for"),
            column("tenant", pa.string(), "tenant, if known", null=True),
            column("id", pa.string(), "id, if known", null=True),
            column("stage", pa.string(), "step that dropped it, such as clean.language"),
            column("reason", pa.string(), "reason in one phrase"),
            column("file", pa.string(), "source file", null=True),
            column("line", pa.int64(), "line in that file, from 1 (row number in files without lines)", null=True),
            column("represented_by", pa.string(), "id of the kept row that represents it", null=True),
            column("payload", pa.string(), "content of the row, possibly truncated", null=True),
        ]
    ),
)

RANKINGS = Table(
    "rankings",
    ("tenant", "query_id", "retriever", "rank"),
    "ranking of each retriever, to depth `pool.search_depth`",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("retriever", pa.string(), "name of the retriever"),
            column("rank", pa.int32(), "rank in the retriever's list, from 1"),
            CHUNK_ID,
            column("score", pa.float32(), "score of the retriever; higher is better"),
        ]
    ),
)

POOL = Table(
    "pool",
    ("tenant", "query_id", "chunk_id"),
    "candidates to judge: the union of each retriever's top `pool.depth`, or the best by fused rank",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            CHUNK_ID,
            column("retrievers", STRINGS, "retrievers that rank it within the pool depth, sorted by name"),
            column(
                "best_rank", pa.int32(), "best rank in any list, from 1; null for a judged chunk in no list", null=True
            ),
            column("fused_score", pa.float32(), "reciprocal-rank fusion over the full lists (k = 60); 0 if in none"),
        ]
    ),
)

TRIPLETS = Table(
    "triplets",
    ("tenant", "triplet_id"),
    "training triplets: one row per query and positive, with hard negatives",
    pa.schema(
        [
            column("triplet_id", pa.string(), "hash of tenant, query, positive and source"),
            TENANT,
            QUERY_ID,
            column("query", pa.string(), "the query's text"),
            column("positive_id", pa.string(), "chunk_id of the positive; doc_id in a mined run"),
            column(
                "positive",
                pa.string(),
                "text of the positive: title, heading and text on separate lines, or text only (`triplets.text_form`)",
            ),
            column("negative_ids", STRINGS, "ids of the hard negatives, hardest first"),
            column("negatives", STRINGS, "texts of the hard negatives, same order"),
            column(
                "positive_score",
                pa.float32(),
                "pooled: fused retrieval score; relevance: score of the ranker; click: null",
                null=True,
            ),
            column("negative_scores", pa.list_(pa.float32()), "score of each negative, same order"),
            column(
                "weight",
                pa.float32(),
                "probability that the positive is relevant, above 0 to 1; null if unknown or mined",
                null=True,
            ),
            column(
                "source",
                pa.string(),
                "pooled, click_one_hop, click_multi_hop, relevance_one_hop or relevance_multi_hop",
            ),
            column("via_query_id", pa.string(), "associated query that the evidence comes from (multi-hop)", null=True),
            column("date", pa.date32(), "first day of the log with this pair; null if pooled", null=True),
            column(
                "tier", pa.string(), "smallest tier that contains it: small, median or large; null if pooled", null=True
            ),
            column("split", pa.string(), "train or validation; test queries never become triplets"),
        ]
    ),
    patched=True,
)

HELD_OUT = Table(
    "held_out",
    ("tenant", "query_id", "split"),
    "held-out queries with a positive, and whether they share one with training",
    pa.schema(
        [
            TENANT,
            QUERY_ID,
            column("split", pa.string(), "validation or test"),
            column(
                "shares_positive",
                pa.bool_(),
                "true if a positive of the query is also a positive of a training triplet",
            ),
        ]
    ),
)

SPLIT_LEAKAGE = Table(
    "split_leakage",
    ("measure",),
    "what training and validation triplets share",
    pa.schema(
        [
            column(
                "measure",
                pa.string(),
                "queries; reworded queries (the same words in any order); positives (ids); in a log also sessions and "
                "users whose clicks support triplets, in at most the last 28 days, and sessions by all of their "
                "searches",
            ),
            column("train", pa.int64(), "number in the training split"),
            column("validation", pa.int64(), "number in the validation split"),
            column("shared", pa.int64(), "number in both splits"),
        ]
    ),
)

FUNNEL = Table(
    "funnel",
    ("position", "reason"),
    "rows in, rows out and drops by reason, for each step",
    pa.schema(
        [
            column("position", pa.int32(), "index of the step, from 0"),
            column("step", pa.string(), "stage, or step of a stage, such as clean.language"),
            column("unit_in", pa.string(), "unit of rows_in"),
            column("rows_in", pa.int64(), "input rows"),
            column("unit_out", pa.string(), "unit of rows_out"),
            column("rows_out", pa.int64(), "output rows"),
            column("reason", pa.string(), "reason of the drop; null if nothing was dropped", null=True),
            column("dropped", pa.int64(), "rows dropped for that reason"),
        ]
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        DOCUMENTS,
        CHUNKS,
        RAW_QUERIES,
        CLEANED_QUERIES,
        QUERIES,
        REJECTS,
        RANKINGS,
        POOL,
        *LABEL_TABLES,
        HUMAN_LABELS,
        CALIBRATION,
        RELIABILITY,
        *DAY_TABLES,
        *MINED_TABLES,
        *TRIPLETS.with_patch(),
        HELD_OUT,
        SPLIT_LEAKAGE,
        FUNNEL,
        AUDIT_RETRIEVERS,
        AUDIT_OVERLAP,
        CORRECTED_AUDIT,
        TEST_TEXTS,
        MANUAL_TEXTS,
        *EVALUATION_TABLES,
        *TRAINING_TABLES,
        *SERVING_TABLES,
        *GENERATION_TABLES,
        *REVIEW_TABLES,
        *PROBE_TABLES,
    )
}
