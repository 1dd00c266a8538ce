"""Tables of `index`: indexed texts, semantic ids, files, and recall against exact search."""

import pyarrow as pa

from darklode.schemas.table import TENANT, Table, column

TEXT = column("text_id", pa.string(), "chunk_id of a build, doc_id of a mined run, or id in a vector file")
DOC = column("doc_id", pa.string(), "document of the text; the text id for a vector file without documents")
NUMBER = column("number", pa.int64(), "number of the text in the index; never reused")
LEVEL = column("level", pa.int32(), "level, from 1")
PART = column("part", pa.string(), "encoder of the queries: base or adapted")

INDEXED_TEXTS = Table(
    "indexed_texts",
    ("tenant", "text_id"),
    "texts of an index, without their content",
    pa.schema(
        [
            TENANT,
            TEXT,
            DOC,
            column("content_hash", pa.string(), "key of its vector in the embedding cache, 32 hex digits"),
            NUMBER,
        ]
    ),
)

SEMANTIC_CODEBOOKS = Table(
    "semantic_codebooks",
    ("fit", "level", "code"),
    "codebooks of the semantic ids",
    pa.schema(
        [
            column("fit", pa.int32(), "0: in use; 1: fitted again on other texts, to measure stability"),
            LEVEL,
            column("code", pa.int32(), "code, from 0"),
            column("centre", pa.list_(pa.float32()), "centroid"),
        ]
    ),
)

SEMANTIC_IDS = Table(
    "semantic_ids",
    ("tenant", "text_id"),
    "semantic ids: texts with similar vectors share a prefix",
    pa.schema(
        [
            TENANT,
            TEXT,
            DOC,
            column("codes", pa.list_(pa.int32()), "one code per level, from 0"),
            column("disambiguation", pa.int32(), "number that distinguishes texts with equal codes, from 0"),
            column("codebook", pa.string(), "id of the codebook; codes of different codebooks are not comparable"),
            NUMBER,
        ]
    ),
)

SEMANTIC_ID_LEVELS = Table(
    "semantic_id_levels",
    ("level",),
    "quality of each level of the semantic ids, over all texts",
    pa.schema(
        [
            LEVEL,
            column("codes", pa.int32(), "codebook size of the level"),
            column(
                "error",
                pa.float64(),
                "mean squared residual after the level, on the fitting sample; vectors have length 1",
            ),
            column("perplexity", pa.float64(), "perplexity of the code distribution"),
            column("unique", pa.float64(), "share of texts with a unique prefix up to this level"),
            column(
                "stability",
                pa.float64(),
                "Jaccard similarity of the pairs of texts with equal prefixes in this codebook and one fitted on "
                "other texts; null without such pairs",
                null=True,
            ),
        ]
    ),
)

INDEX_FILES = Table(
    "index_files",
    ("file",),
    "files of an index besides its tables",
    pa.schema(
        [
            column("file", pa.string(), "file name"),
            column("bytes", pa.int64(), "file size"),
            column("sha256", pa.string(), "SHA-256 of the content, 64 hex digits"),
            column("vectors", pa.int64(), "number of vectors, deleted ones included"),
        ]
    ),
)

INDEX_PROBES = Table(
    "index_probes",
    ("part", "query", "rank"),
    "exact search results of the queries used to measure recall",
    pa.schema(
        [
            PART,
            column(
                "query", pa.int32(), "query number, from 0; odd numbers are held out from choosing the search effort"
            ),
            column("rank", pa.int32(), "rank, from 1"),
            NUMBER,
            column("score", pa.float32(), "cosine similarity"),
        ]
    ),
)

INDEX_QUERIES = Table(
    "index_queries",
    ("tenant", "part", "query"),
    "queries used to measure recall",
    pa.schema(
        [
            PART,
            column("query", pa.int32(), "query number, from 0"),
            column("tenant", pa.string(), "tenant whose texts the query searches"),
            column(
                "text",
                pa.string(),
                "text of the query; null if the vector of an indexed text is used as the query",
                null=True,
            ),
            column("vector", pa.list_(pa.float32()), "query vector, length 1"),
        ]
    ),
)

INDEX_RECALL = Table(
    "index_recall",
    ("part", "effort", "rerank", "half", "depth"),
    "recall of the index against exact search",
    pa.schema(
        [
            PART,
            column("effort", pa.int32(), "nprobe for ivfpq, efSearch for hnsw, 0 for flat"),
            column("rerank", pa.int32(), "candidate factor of re-ranking with stored vectors; 1: no re-ranking"),
            column("half", pa.string(), "chosen on: queries used to choose the effort; held out: all others"),
            column("depth", pa.int32(), "10 or 100"),
            column("recall", pa.float64(), "mean over queries, 0 to 1"),
            column("error", pa.float64(), "standard error of the mean; null for one query", null=True),
            column("queries", pa.int64(), "number of queries"),
            column("chosen", pa.bool_(), "true if this effort is in use"),
        ]
    ),
)

INDEX_RESULTS = Table(
    "index_results",
    ("query", "rank"),
    "top ten of the index for some queries by the base encoder; `darklode index check` repeats them",
    pa.schema(
        [
            column("query", pa.int32(), "query number in `index_queries`"),
            column("rank", pa.int32(), "rank, from 1"),
            TEXT,
            column("score", pa.float32(), "cosine, from codes or stored vectors"),
        ]
    ),
)

SERVING_TABLES = (
    INDEXED_TEXTS,
    SEMANTIC_CODEBOOKS,
    SEMANTIC_IDS,
    SEMANTIC_ID_LEVELS,
    INDEX_FILES,
    INDEX_QUERIES,
    INDEX_PROBES,
    INDEX_RECALL,
    INDEX_RESULTS,
)
