"""Exact nearest-neighbor search for training, in float32; reproducible on one machine.

`exact_search` is reproducible across machines but several times slower, and training itself is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product

import numpy as np
from threadpoolctl import ThreadpoolController

from darklode.pipeline.base.types import Floats, Ints, Keys
from darklode.pipeline.retrieve.retrievers.topk import floor_of, from_rank_keys, pad_rows, rank_keys

TEXTS_PER_BLOCK = 4096
"""Fixed number of texts per matrix product; see `QUERIES_PER_BLOCK`."""
QUERIES_PER_BLOCK = 4096
"""Fixed number of queries per matrix product on every machine (64 MB of scores): another shape could change the sums.
"""

_MAX_WORKERS = 8
"""Maximum threads: each holds a block of scores (64 MB)."""


def nearest(queries: Floats, take: Callable[[Ints], Floats], among: range, depth: int) -> tuple[Ints, Floats]:
    """Find the nearest texts of each query, best first, ties by position: positions and scores, (n_queries, depth).

    Missing entries have position −1 and score NaN; a zero query has no results.

    Args:
        queries: shape (n_queries, dimensions).
        take: returns text vectors at positions; called from threads.
        among: positions of the texts.
        depth: number of texts per query.
    """
    keys = np.zeros((len(queries), depth), np.uint64)

    def search_block(block: tuple[range, int]) -> tuple[slice, Keys]:
        texts, first_query = block
        query_slice = slice(first_query, first_query + QUERIES_PER_BLOCK)
        scores = queries[query_slice] @ take(np.arange(texts.start, texts.stop)).T
        return query_slice, _best_keys(scores, texts.start, depth)

    blocks = product(_text_blocks(among), range(0, len(queries), QUERIES_PER_BLOCK))
    workers = min(os.cpu_count() or 1, _MAX_WORKERS)
    with _blas().limit(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as threads:
        for query_slice, block_keys in threads.map(search_block, blocks):
            candidates = np.concatenate([keys[query_slice], block_keys], axis=1)
            n_worse = candidates.shape[1] - depth
            keys[query_slice] = np.partition(candidates, n_worse, axis=1)[:, n_worse:]
    keys = np.sort(keys, axis=1)[:, ::-1]
    scores, positions = from_rank_keys(keys)
    is_hit = (keys > 0) & np.any(queries, axis=1, keepdims=True)
    return np.where(is_hit, positions, -1), np.where(is_hit, scores, np.float32(np.nan))


@cache
def _blas() -> ThreadpoolController:
    """NumPy's BLAS; finding it among the loaded libraries takes longer than a small search."""
    return ThreadpoolController()


def _text_blocks(among: range) -> list[range]:
    return [
        range(start, min(start + TEXTS_PER_BLOCK, among.stop))
        for start in range(among.start, among.stop, TEXTS_PER_BLOCK)
    ]


def _best_keys(scores: Floats, start: int, depth: int) -> Keys:
    """Rank keys of the best entries of each row, unordered; ties can give a few more than `depth`."""
    floor = floor_of(scores, depth) if scores.shape[1] > depth else np.full(len(scores), -np.inf, np.float32)
    positions_above = np.flatnonzero(scores >= floor[:, None])
    query = positions_above // scores.shape[1]
    keys = rank_keys(scores.reshape(-1)[positions_above], positions_above - query * scores.shape[1] + start)
    return pad_rows(query, keys, len(scores), 0).astype(np.uint64)
