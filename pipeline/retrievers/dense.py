"""Dense retrieval: an encoder, the corpus's vectors in a memory-mapped file, and an exact search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.encoders.port import Encoder
from pipeline.retrievers.port import Hits
from pipeline.retrievers.topk import fixed_point, search_vectors


def store_vectors(blocks: Iterable[NDArray[Any]], n_chunks: int, dimensions: int, path: Path) -> NDArray[np.int16]:
    """Write blocks of chunk vectors to `path` as fixed-point numbers and map them read-only.

    Memory follows the block; the file takes 2 bytes a number.

    Raises:
        ValueError: the blocks do not hold `n_chunks` rows.
    """
    part = path.with_suffix(".part")
    vectors = np.lib.format.open_memmap(part, mode="w+", dtype=np.int16, shape=(n_chunks, dimensions))
    done = 0
    for block in blocks:
        if done + len(block) > n_chunks:
            raise ValueError(f"{path}: more than {n_chunks} chunks arrived; give each chunk once, in order")
        vectors[done : done + len(block)] = fixed_point(block)
        done += len(block)
    if done < n_chunks:
        raise ValueError(f"{path}: {done} of {n_chunks} chunks arrived; give each chunk once, in order")
    vectors.flush()
    part.replace(path)  # whoever still maps an older file of this name keeps it
    return np.asarray(np.load(path, mmap_mode="r"))


class Dense:
    """Exact nearest neighbours of the query's vector by inner product.

    Args:
        name: the retriever's name in rankings.
        encoder: encodes the queries; the same that made `vectors`.
        vectors: the chunks' vectors from `store_vectors`, shape (n_chunks, encoder.dimensions).
    """

    def __init__(self, name: str, encoder: Encoder, vectors: NDArray[np.int16]) -> None:
        self.name = name
        self._encoder = encoder
        self._vectors = vectors

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A query the encoder knows no word of has no hits; an empty chunk is never one."""
        return search_vectors(fixed_point(self._encoder.encode_queries(queries)), self._vectors, depth)
