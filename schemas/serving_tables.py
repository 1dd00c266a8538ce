"""The tables of `index`: what is searched, its semantic ids, the files, and what a search finds of an exact one."""

import pyarrow as pa

from darklode.schemas.table import TENANT, Table, column

TEXT = column("text_id", pa.string(), "chunk_id of a build, doc_id of a mined run, id of a file of vectors")
DOC = column("doc_id", pa.string(), "the document it is of; of a file of vectors without documents the text itself")
NUMBER = column("number", pa.int64(), "the text's in the index: given once, and not again when it goes or changes")
LEVEL = column("level", pa.int32(), "from 1")
PART = column("part", pa.string(), "base, or adapted: which encoder the queries are by")

INDEXED_TEXTS = Table(
    "indexed_texts",
    ("tenant", "text_id"),
    "the texts of an index, without their words",
    pa.schema(
        [
            TENANT,
            TEXT,
            DOC,
            column("content_hash", pa.string(), "what names its vector in the cache, 32 hex digits"),
            NUMBER,
        ]
    ),
)

SEMANTIC_CODEBOOKS = Table(
    "semantic_codebooks",
    ("fit", "level", "code"),
    "the centres that semantic ids name",
    pa.schema(
        [
            column("fit", pa.int32(), "0: those in use; 1: fitted once more on other texts, to see what would stay"),
            LEVEL,
            column("code", pa.int32(), "from 0"),
            column("centre", pa.list_(pa.float32()), "its numbers"),
        ]
    ),
)

SEMANTIC_IDS = Table(
    "semantic_ids",
    ("tenant", "text_id"),
    "each text's semantic id: texts of near vectors share its first numbers",
    pa.schema(
        [
            TENANT,
            TEXT,
            DOC,
            column("codes", pa.list_(pa.int32()), "a number for each level, from 0"),
            column("disambiguation", pa.int32(), "from 0; tells texts of equal codes apart"),
            column(
                "codebook", pa.string(), "which centres the codes name: ids of two codebooks have nothing in common"
            ),
            NUMBER,
        ]
    ),
)

SEMANTIC_ID_LEVELS = Table(
    "semantic_id_levels",
    ("level",),
    "what the levels of semantic ids are worth, over all texts",
    pa.schema(
        [
            LEVEL,
            column("codes", pa.int32(), "centres of the level"),
            column(
                "error",
                pa.float64(),
                "mean squared distance that was left after it when it was fitted; vectors have length 1",
            ),
            column("perplexity", pa.float64(), "of its codes: as many equally used ones would be as varied"),
            column("unique", pa.float64(), "share of the texts that no other one shares the codes up to it with"),
            column(
                "stability",
                pa.float64(),
                "of the pairs of texts with equal codes up to it by this fit or by one on other texts, the share that "
                "has them by both; null where there is no such pair",
                null=True,
            ),
        ]
    ),
)

INDEX_FILES = Table(
    "index_files",
    ("file",),
    "the files of an index besides its tables",
    pa.schema(
        [
            column("file", pa.string(), "its name in the folder"),
            column("bytes", pa.int64(), "how many"),
            column("sha256", pa.string(), "of its content, 64 hex digits"),
            column("vectors", pa.int64(), "vectors that it holds, those that went included"),
        ]
    ),
)

INDEX_PROBES = Table(
    "index_probes",
    ("part", "query", "rank"),
    "what an exact search by whole vectors finds for the queries that recall is measured on",
    pa.schema(
        [
            PART,
            column("query", pa.int32(), "from 0; those with an odd number have no say in how hard is searched"),
            column("rank", pa.int32(), "from 1"),
            NUMBER,
            column("score", pa.float32(), "cosine"),
        ]
    ),
)

INDEX_QUERIES = Table(
    "index_queries",
    ("part", "query"),
    "the queries that recall is measured on",
    pa.schema(
        [
            PART,
            column("query", pa.int32(), "from 0"),
            column("text", pa.string(), "as it is asked; null where a text's own vector stands for it", null=True),
            column("vector", pa.list_(pa.float32()), "of length 1"),
        ]
    ),
)

INDEX_RECALL = Table(
    "index_recall",
    ("part", "effort", "rerank", "half", "depth"),
    "what share of an exact search's texts the index finds",
    pa.schema(
        [
            PART,
            column("effort", pa.int32(), "cells looked into (nprobe) of ivfpq, efSearch of hnsw; 0 of flat"),
            column(
                "rerank", pa.int32(), "times as many candidates are scored again by stored vectors; 1: none are stored"
            ),
            column("half", pa.string(), "chosen on: queries that the effort was chosen by; held out: the others"),
            column("depth", pa.int32(), "10 or 100"),
            column("recall", pa.float64(), "mean over the queries, 0 to 1"),
            column("error", pa.float64(), "standard error of that mean; null of one query", null=True),
            column("queries", pa.int64(), "how many"),
            column("chosen", pa.bool_(), "whether this effort is the one in use"),
        ]
    ),
)

INDEX_FOUND = Table(
    "index_found",
    ("query", "rank"),
    "the first ten that the index finds for some queries, by the base: `darklode index check` asks them again",
    pa.schema(
        [
            column("query", pa.int32(), "of `index_queries`"),
            column("rank", pa.int32(), "from 1"),
            TEXT,
            column("score", pa.float32(), "cosine, by codes or by stored vectors"),
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
    INDEX_FOUND,
)
