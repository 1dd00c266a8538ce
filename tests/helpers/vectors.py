"""Vectors that are easy or hard to rank, their plain ranking, and a cache that holds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from darklode.pipeline.base.memory import vectors as append
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.retrievers.port import Hits
from darklode.pipeline.retrieve.retrievers.topk import tree_sum

KINDS = ("smooth", "ties", "near ties", "ascending", "equal")
SEARCHES = {
    "seed": st.integers(0, 10_000),
    "kind": st.sampled_from(KINDS),
    "n": st.integers(1, 300),
    "depth": st.integers(1, 60),
}
"""What to make vectors of, how many, and how deep to search."""


def made(seed: int, kind: str, n: int, dimensions: int = 24) -> np.ndarray:
    """Vectors that are easy or hard to rank."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((n, dimensions))
    if kind == "ties":
        vectors = random.integers(0, 2, (n, dimensions)) + 0.0
        vectors[:, 0] = 1
    if kind == "near ties":
        vectors = vectors[0] + 1e-7 * vectors
    if kind == "ascending":
        vectors = vectors[0] + np.linspace(1, 0, n)[:, None] * random.standard_normal(dimensions)
    if kind == "equal":
        vectors[:] = vectors[0]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def cached(root: Path, dtype: str, vectors: np.ndarray, shard_rows: int, names: list[str]) -> EmbeddingCache:
    kept = EmbeddingCache(str(root), dtype)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append, "SHARD_BYTES", shard_rows * vectors.shape[1] * np.dtype(dtype).itemsize)
        kept.append("model", names, vectors)
    return kept


def plain(queries: np.ndarray, vectors: np.ndarray, depth: int) -> Hits:
    """Every score by the definition, sorted."""
    k = min(depth, len(vectors))
    rows, scores = np.full((len(queries), k), -1), np.full((len(queries), k), np.nan, dtype=np.float32)
    for at, query in enumerate(queries):
        if query.any():
            every = tree_sum(vectors.astype(np.float64) * query).astype(np.float32)
            rows[at] = np.lexsort((np.arange(len(every)), -every))[:k]
            scores[at] = every[rows[at]]
    return Hits(rows, scores)


def same(ours: Hits, theirs: Hits) -> None:
    np.testing.assert_array_equal(ours.rows, theirs.rows)
    np.testing.assert_array_equal(ours.scores, theirs.scores)
