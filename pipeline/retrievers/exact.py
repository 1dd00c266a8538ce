"""Exact search over vectors on the CPU or one GPU: the same answer on both, for every block and shard size."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import MissingPart
from pipeline.retrievers.blocks import ArrayVectors, Vectors
from pipeline.retrievers.candidates import search_cpu
from pipeline.retrievers.port import Hits
from pipeline.retrievers.topk import stack_hits
from schemas.settings import VectorSettings

_SURVIVOR_BYTES = 256
"""Host memory that a query's place in the lists costs while they are made, at most."""


def exact_search(
    queries: NDArray[np.float32], vectors: Vectors | NDArray[Any], depth: int, settings: VectorSettings
) -> Hits:
    """The `depth` best chunks of each query by inner product, equal scores by ascending chunk row.

    A score is defined in `scores.score_pairs`; the fast products only choose what is scored, with a proven margin.

    Args:
        queries: shape (n_queries, dimensions); an all-zero query finds nothing.
        vectors: the chunks' vectors, as `CachedVectors`, `ArrayVectors` or an array of shape (n_chunks, dimensions).
        depth: at least 1.
        settings: device and memory.

    Raises:
        ValueError: a query is not finite, is not as long as the vectors, or its scores could exceed float32.
        MissingPart: the settings ask for a GPU and there is none.
    """
    source: Vectors = ArrayVectors(vectors) if isinstance(vectors, np.ndarray) else vectors
    queries = _checked(queries, source)
    k = min(depth, source.n_chunks)
    step = max(1, settings.memory_mb * 2**20 // 2 // (_SURVIVOR_BYTES * max(1, k)))
    blocks = [_search(queries[at : at + step], source, k, settings) for at in range(0, len(queries), step)]
    return stack_hits(blocks, k)


def _checked(queries: NDArray[np.float32], vectors: Vectors) -> NDArray[np.float32]:
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    if queries.ndim != 2 or queries.shape[1] != vectors.dimensions:
        raise ValueError(f"queries of shape {queries.shape} do not fit vectors of {vectors.dimensions} numbers")
    if not np.isfinite(queries).all():
        bad = int((~np.isfinite(queries)).any(axis=1).argmax())
        raise ValueError(f"the vector of query {bad} holds a number that is not finite; check the encoder")
    long = np.linalg.norm(queries.astype(np.float64), axis=1) * vectors.longest >= 2.0**127
    if long.any():
        raise ValueError(f"the scores of query {int(long.argmax())} could exceed float32; scale its vector down")
    return queries


def _search(queries: NDArray[np.float32], vectors: Vectors, k: int, settings: VectorSettings) -> Hits:
    rows = np.full((len(queries), k), -1, dtype=np.int64)
    scores = np.full((len(queries), k), np.nan, dtype=np.float32)
    known = np.flatnonzero(queries.any(axis=1))
    if len(known) and k:
        found = _best(queries[known], vectors, min(k, len(vectors)), settings)
        rows[known], scores[known] = _chunks(vectors, k, *found)
    return Hits(rows, scores)


def _best(
    queries: NDArray[np.float32], vectors: Vectors, k: int, settings: VectorSettings
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    device = gpu(settings)
    if device is None:
        return search_cpu(queries, vectors, k, settings.memory_mb * 2**20)
    torch_search: Any = importlib.import_module("pipeline.retrievers.torch_search")  # torch is slow and optional
    scores, rows = torch_search.search_torch(queries, vectors, k, device, settings.gpu_memory_mb * 2**20)
    return scores, rows


def gpu(settings: VectorSettings) -> str | None:
    """The GPU that the settings lead to on this machine, or None for the CPU.

    Raises:
        MissingPart: they ask for a GPU and torch sees none.
    """
    if settings.device == "cpu":
        return None
    if importlib.util.find_spec("torch") and importlib.import_module("torch").cuda.is_available():
        return "cuda"
    if settings.device == "cuda":
        raise MissingPart("vectors.device is cuda, and torch sees no GPU; install torch for CUDA, or set it to auto")
    return None


def _chunks(
    vectors: Vectors, k: int, scores: NDArray[np.float32], first_rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Lists of chunks from lists of vectors: a vector gives all its chunks, ties by row over all of them."""
    if len(vectors) == vectors.n_chunks:
        return first_rows, scores
    rows = np.empty((len(scores), k), dtype=np.int64)
    values = np.empty((len(scores), k), dtype=np.float32)
    for at, (ours, firsts) in enumerate(zip(scores, first_rows, strict=True)):
        chunks, counts = vectors.chunks_of(firsts)
        each = np.repeat(ours, counts)
        order = np.lexsort((chunks, -each))[:k]
        rows[at], values[at] = chunks[order], each[order]
    return rows, values
