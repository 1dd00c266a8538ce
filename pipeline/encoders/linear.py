"""The encoder behind every fitted one: a chunk's vector is the weighted sum of its terms' vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.terms import TermSpace


def unit_rows(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Rows scaled to length 1; a row shorter than 1e-6 becomes zero. Shape kept."""
    vectors = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(lengths < 1e-6, 0, vectors / np.maximum(lengths, 1e-6)).astype(np.float32)


def unit_sparse_rows(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Rows of a sparse matrix scaled to length 1; an empty row stays empty."""
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return (sparse.diags(scale.astype(np.float32)) @ matrix).tocsr()


def log_counts(counts: sparse.csr_matrix, weights: NDArray[np.float32] | None = None) -> sparse.csr_matrix:
    """log(1 + count), times one weight per term where weights of shape (n_terms,) are given."""
    damped = counts.copy()
    damped.data = np.log1p(damped.data)
    return damped if weights is None else (damped @ sparse.diags(weights)).tocsr()


class TermVectors:
    """An encoder: unit(log(1 + counts) · map), with one map for queries and one for documents.

    Args:
        name: method and revision; with the corpus's fingerprint it becomes the encoder's id.
        terms: the corpus it was fitted on.
        document_map: one vector per frequent term of the corpus, shape (len(terms.frequent), dimensions).
        query_map: the same for queries, where they differ.
    """

    def __init__(
        self,
        name: str,
        terms: TermSpace,
        document_map: NDArray[np.float32],
        query_map: NDArray[np.float32] | None = None,
    ) -> None:
        self.encoder_id = f"{name}:{terms.fingerprint}"
        self.dimensions = int(document_map.shape[1])
        self._terms = terms
        self._document_map = np.ascontiguousarray(document_map, dtype=np.float32)
        self._query_map = self._document_map if query_map is None else query_map.astype(np.float32)

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Encoder`."""
        return self._encode(self._terms.count(texts), self._query_map)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Encoder`."""
        return self.encode_counts(self._terms.count(texts))

    def encode_counts(self, counts: sparse.csr_matrix) -> NDArray[np.float32]:
        """Vectors of documents given as rows of the corpus's counts: nothing is tokenised a second time."""
        return self._encode(counts, self._document_map)

    def _encode(self, counts: sparse.csr_matrix, term_vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        return unit_rows(log_counts(self._terms.only_frequent(counts)) @ term_vectors)
