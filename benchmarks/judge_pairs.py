"""Made-up pairs for the LLM judge: as rows, or as the tables of a run that is ready to be judged."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.judge.port import PAIRS
from darklode.schemas.tables import CHUNKS, POOL, QUERIES

CHUNKS_PER_QUERY = 250
N_CHUNKS = 5_000


def query_text(number: int) -> str:
    """A short query."""
    return f"how to rotate the signing secret of destination {number}"


def chunk_text(number: int) -> str:
    """About 500 characters."""
    return f"Destination {number}. " + "Open the settings, choose the secret and press Rotate; both stay valid. " * 7


def digest(text: str) -> str:
    """32 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def pair_rows(pairs: int) -> pa.Table:
    """Rows of `PAIRS`: `CHUNKS_PER_QUERY` chunks for each query."""
    queries = [row // CHUNKS_PER_QUERY for row in range(pairs)]
    chunks = [row % CHUNKS_PER_QUERY for row in range(pairs)]
    return pa.table(
        {
            "tenant": ["t"] * pairs,
            "query_id": [f"q{query:06}" for query in queries],
            "query": [query_text(query) for query in queries],
            "chunk_id": [f"c{chunk:06}" for chunk in chunks],
            "title": ["Secrets"] * pairs,
            "heading": pa.nulls(pairs, pa.string()),
            "text": [chunk_text(chunk) for chunk in chunks],
            "query_hash": [digest(query_text(query)) for query in queries],
            "chunk_hash": [digest(chunk_text(chunk)) for chunk in chunks],
        },
        schema=PAIRS,
    )


def write_table(run: Run, table: str, *parts: pa.Table) -> None:
    """Give the run a table, as if a stage had written it."""
    stage = Stage(f"given_{table}", 1, (), (table,))

    def write(_: Tables, output: Output) -> None:
        for part in parts:
            output.write(table, part)

    run.execute(run.plan(stage, {}), write)


def write_pool(run: Run, pairs: int) -> None:
    """Queries, chunks and a pool of `pairs` pairs."""
    n = -(-pairs // CHUNKS_PER_QUERY)
    ids, names = [f"q{query:06}" for query in range(n)], [f"c{chunk:06}" for chunk in range(N_CHUNKS)]
    texts = [chunk_text(chunk) for chunk in range(N_CHUNKS)]
    queries: dict[str, object] = {"tenant": ["t"] * n, "query_id": ids, "text": [query_text(query) for query in range(n)]}
    queries |= {"language": ["en"] * n, "split": ["train"] * n}
    queries |= {name: [1] * n for name in ("n_words", "cluster_id", "n_represented", "language_score")}
    write_table(run, "queries", QUERIES.rows(queries))
    zeros, hashes = [0] * N_CHUNKS, [digest(text) for text in texts]
    chunks: dict[str, object] = {"tenant": ["t"] * N_CHUNKS, "chunk_id": names, "doc_id": names, "text": texts, "content_hash": hashes}
    offsets = {"position": zeros, "start": zeros, "end": [len(text) for text in texts]}
    write_table(run, "chunks", CHUNKS.rows(chunks | offsets))
    rows = np.arange(pairs)
    query = rows // CHUNKS_PER_QUERY
    chunk = query * 7 + rows % CHUNKS_PER_QUERY
    pool = {
        "tenant": pa.repeat("t", pairs),
        "query_id": pa.array(ids).take(pa.array(query)),
        "chunk_id": pa.array(names).take(pa.array(chunk % N_CHUNKS)),
        "retrievers": pa.array([["bm25"]]).take(pa.array(np.zeros(pairs, np.int64))),
        "best_rank": pa.repeat(1, pairs),
        "fused_score": pa.repeat(0.1, pairs),
    }
    write_table(run, "pool", POOL.rows(pool))
