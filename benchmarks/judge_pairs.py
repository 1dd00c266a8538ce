"""Made-up pairs for the LLM judge: as rows, or as the tables of a run that is ready to be judged."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from benchmarks.run_tables import write_columns
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.judge.port import PAIRS

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


def write_pool(run: Run, pairs: int) -> None:
    """Write queries, chunks and a pool of `pairs` pairs."""
    n = -(-pairs // CHUNKS_PER_QUERY)
    ids, names = [f"q{query:06}" for query in range(n)], [f"c{chunk:06}" for chunk in range(N_CHUNKS)]
    texts = [chunk_text(chunk) for chunk in range(N_CHUNKS)]
    queries = {"query_id": ids, "text": [query_text(query) for query in range(n)]}
    constant: dict[str, object] = dict.fromkeys(("n_words", "cluster_id", "n_represented", "language_score"), 1)
    write_columns(run, "queries", queries, language="en", split="train", **constant)
    chunks: dict[str, object] = {
        "chunk_id": names,
        "doc_id": names,
        "text": texts,
        "content_hash": [digest(text) for text in texts],
    }
    write_columns(run, "chunks", chunks | {"end": [len(text) for text in texts]}, position=0, start=0)
    rows = np.arange(pairs)
    query = rows // CHUNKS_PER_QUERY
    chunk = (query * 7 + rows % CHUNKS_PER_QUERY) % N_CHUNKS
    pool = {"query_id": pa.array(ids).take(pa.array(query)), "chunk_id": pa.array(names).take(pa.array(chunk))}
    write_columns(run, "pool", pool, retrievers=["bm25"], best_rank=1, fused_score=0.1)
