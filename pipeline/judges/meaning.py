"""What a query and a chunk are about: latent semantic analysis of the corpus, the query helped by its first finds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from pipeline.encoders.linear import unit_rows
from pipeline.encoders.lsa import fit_lsa
from pipeline.retrievers.port import Hits
from pipeline.retrievers.topk import fixed_point
from pipeline.terms import TermSpace

DIMENSIONS = 128
_BLOCK_ROWS = 1 << 15
_Vectors = NDArray[np.int16]


class Meaning:
    """An LSA of the corpus and its chunks' vectors: fixed-point, so that every inner product is exact.

    Attributes:
        vectors: the corpus's chunks, shape (n_chunks, dimensions).
    """

    def __init__(self, space: TermSpace) -> None:
        with threadpool_limits(1):  # the number of threads would change the last bits
            self._encoder = fit_lsa(space, DIMENSIONS)
        starts = range(0, space.n_chunks, _BLOCK_ROWS)
        blocks = [self.project(space.counts[start : start + _BLOCK_ROWS]) for start in starts]
        self.vectors: _Vectors = np.concatenate([np.empty((0, self._encoder.dimensions), np.int16), *blocks])

    def project(self, counts: sparse.csr_matrix) -> _Vectors:
        """Vectors of texts given by their term counts, shape (n_texts, dimensions); zero where nothing is known."""
        return fixed_point(self._encoder.encode_counts(counts))

    def with_feedback(self, queries: _Vectors, found: Hits) -> _Vectors:
        """Queries moved to the middle between them and the mean of their first finds (Rocchio 1971), shape kept."""
        hit = found.rows >= 0
        n_found = np.maximum(hit.sum(axis=1, keepdims=True), 1)
        moved = queries * n_found
        for place in range(found.rows.shape[1]):
            finds = self.vectors[found.rows[:, place]].astype(np.int64)
            moved = moved + finds * hit[:, place : place + 1]
        return fixed_point(unit_rows(moved))

    def best(self, queries: _Vectors) -> NDArray[np.int64]:
        """Each query's largest inner product with any chunk of the corpus, at least 0, shape (n_queries,)."""
        left = queries.astype(np.float32)
        best = np.zeros(len(queries), dtype=np.float32)
        for start in range(0, len(self.vectors), _BLOCK_ROWS):
            right = self.vectors[start : start + _BLOCK_ROWS].astype(np.float32)
            best = np.maximum(best, (left @ right.T).max(axis=1))
        return best.astype(np.int64)


def products(left: _Vectors, right: _Vectors) -> NDArray[np.int64]:
    """Inner product of row i with row i, shape (n_rows,)."""
    return np.asarray(np.einsum("ij,ij->i", left.astype(np.int64), right.astype(np.int64)))
