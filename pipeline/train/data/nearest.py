"""Exact nearest-neighbor search for training, in float32; reproducible on one machine.

`exact_search` is reproducible across machines but several times slower, and training itself is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.types import Floats, Ints, Keys
from darklode.pipeline.retrieve.retrievers.topk import floor_of, from_rank_keys, pad_rows, rank_keys

TEXTS = 4096
QUERIES = 4096
"""Fixed number of queries per matrix product on every machine (64 MB of scores): another shape could change the sums.
"""

_MOST_WORKERS = 8


def nearest(queries: Floats, take: Callable[[Ints], Floats], among: range, depth: int) -> tuple[Ints, Floats]:
    """Positions and scores of the nearest texts of each query, shape (n_queries, depth); ties by position.

    Missing entries have position −1 and score NaN; a zero query has no results.

    Args:
        queries: shape (n_queries, dimensions).
        take: returns text vectors at positions; called from threads.
        among: positions of the texts.
        depth: of the lists.
    """
    keys = np.zeros((len(queries), depth), np.uint64)

    def work(block: tuple[range, int]) -> tuple[slice, Keys]:
        texts, first = block
        part = slice(first, first + QUERIES)
        return part, _best(queries[part] @ take(np.arange(texts.start, texts.stop)).T, texts.start, depth)

    blocks = product(_cut(among), range(0, len(queries), QUERIES))
    workers = min(os.cpu_count() or 1, _MOST_WORKERS)
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as threads:
        for part, part_hits in threads.map(work, blocks):
            both = np.concatenate([keys[part], part_hits], axis=1)
            keys[part] = np.partition(both, both.shape[1] - depth, axis=1)[:, both.shape[1] - depth :]
    keys = np.sort(keys, axis=1)[:, ::-1]
    scores, positions = from_rank_keys(keys)
    is_hit = (keys > 0) & np.any(queries, axis=1, keepdims=True)
    return np.where(is_hit, positions, -1), np.where(is_hit, scores, np.float32(np.nan))


def _cut(among: range) -> list[range]:
    return [range(start, min(start + TEXTS, among.stop)) for start in range(among.start, among.stop, TEXTS)]


def _best(scores: Floats, start: int, depth: int) -> Keys:
    """Rank keys of the best entries of each row, unordered; ties can give a few more than `depth`."""
    floor = floor_of(scores, depth) if scores.shape[1] > depth else np.full(len(scores), -np.inf, np.float32)
    positions_above = np.flatnonzero(scores >= floor[:, None])
    query = positions_above // scores.shape[1]
    keys = rank_keys(scores.reshape(-1)[positions_above], positions_above - query * scores.shape[1] + start)
    return pad_rows(query, keys, len(scores), 0).astype(np.uint64)
