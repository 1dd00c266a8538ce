"""Encoders fitted on a corpus: latent semantic analysis over terms, and over character n-grams of terms.

A text's vector is the weighted sum of its terms' vectors (`TermVectors`, the base of all fitted encoders). Character
n-grams match inflected and misspelled words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.terms import TermSpace, inverse_frequency

if TYPE_CHECKING:
    from scipy import sparse

_SAMPLE_CHUNKS = 50_000  # chunks that the fit reads at most: bounds time and memory
_CHARACTER_SAMPLE_CHUNKS = 12_000  # fewer: a chunk has many times more n-grams than terms
_MAX_NGRAMS = 50_000
_NGRAM_SIZES = (3, 4, 5)

_OVERSAMPLING = 20
_POWER_ITERATIONS = 2
_SEED = 20240607  # any: the same on every run
_MIN_SINGULAR_VALUE = 1e-3
"""Singular values below this share of the first are rounding errors, since they are squared in float32."""


class TermVectors:
    """Encoder unit(log(1 + counts) · map), with a map for queries and one for documents.

    Args:
        name: method and revision; with the corpus's fingerprint it becomes the encoder's id.
        terms: the corpus it was fitted on.
        document_map: one vector per frequent term, shape (len(terms.frequent), dimensions).
        query_map: for queries, if different.
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
        return self._encode(self._terms.count(texts), self._query_map)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.encode_counts(self._terms.count(texts))

    def encode_counts(self, counts: sparse.csr_matrix) -> NDArray[np.float32]:
        """Document vectors from rows of the corpus's counts, without tokenizing again."""
        return self._encode(counts, self._document_map)

    def _encode(self, counts: sparse.csr_matrix, term_vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        return unit_rows(log_counts(self._terms.only_frequent(counts)) @ term_vectors)


def fit_lsa(terms: TermSpace, dimensions: int) -> TermVectors:
    """LSA (Deerwester et al. 1990) with log-entropy weights (Dumais 1991), fitted on at most 50,000 chunks."""
    sample = terms.sample(_SAMPLE_CHUNKS)
    weights = np.maximum(entropy_weights(sample), 0) + np.float32(1e-3)  # a term in every chunk keeps a trace
    _, _, right = truncated_svd(unit_sparse_rows(log_counts(sample, weights)), dimensions)
    return TermVectors(f"lsa-{dimensions}-1", terms, weights[:, None] * right.T)


def fit_character_map(terms: TermSpace, dimensions: int) -> NDArray[np.float32]:
    """One vector per frequent term, shape (n_terms, dimensions), leading directions first.

    LSA of chunks by idf-weighted character n-grams (McNamee and Mayfield 2004), fitted on at most 12,000 chunks. A
    chunk's
    n-grams are the sum of those of its terms, so the map is linear in terms.
    """
    from scipy import sparse

    grams = ngram_counts(terms.frequent_terms)
    sample = terms.sample(_CHARACTER_SAMPLE_CHUNKS)
    frequency = np.bincount((sample @ grams).indices, minlength=grams.shape[1])
    retained_columns = np.sort(np.argsort(-frequency, kind="stable")[:_MAX_NGRAMS])
    idf = inverse_frequency(frequency[retained_columns], sample.shape[0])
    weighted = (grams[:, retained_columns] @ sparse.diags(idf)).tocsr()
    _, _, right = truncated_svd(unit_sparse_rows((log_counts(sample) @ weighted).tocsr()), dimensions)
    return np.asarray(weighted @ right.T)


def character_lsa(terms: TermSpace, character_map: NDArray[np.float32], dimensions: int) -> TermVectors:
    """The encoder with the first `dimensions` directions of a map from `fit_character_map`."""
    return TermVectors(f"character-lsa-{dimensions}-1", terms, character_map[:, :dimensions])


def entropy_weights(counts: sparse.csr_matrix) -> NDArray[np.float32]:
    """Weight of each term, shape (n_terms,): 1 if it occurs in one chunk only, 0 if spread evenly.

    1 − entropy of the term over chunks / log(n_chunks).
    """
    by_term = counts.tocoo()
    totals = np.bincount(by_term.col, by_term.data, minlength=counts.shape[1])
    share = by_term.data / totals[by_term.col]
    entropy = -np.bincount(by_term.col, share * np.log(share), minlength=counts.shape[1])
    weights: NDArray[np.float32] = (1 - entropy / np.log(max(2, counts.shape[0]))).astype(np.float32)
    return weights


def ngrams(term: str) -> list[str]:
    """Character 3- to 5-grams of `^term$`."""
    marked = f"^{term}$"
    return [marked[i : i + size] for size in _NGRAM_SIZES for i in range(len(marked) - size + 1)]


def ngram_counts(terms: Iterable[str]) -> sparse.csr_matrix:
    """Count of each n-gram in each term: CSR, shape (n_terms, n_ngrams)."""
    from scipy import sparse

    columns_by_ngram: dict[str, int] = {}
    columns = [[columns_by_ngram.setdefault(gram, len(columns_by_ngram)) for gram in ngrams(term)] for term in terms]
    rows = np.repeat(np.arange(len(columns)), [len(row) for row in columns])
    flat = np.array([column for row in columns for column in row], dtype=np.int64)
    ones = np.ones(len(flat), dtype=np.float32)
    return sparse.csr_matrix((ones, (rows, flat)), shape=(len(columns), max(1, len(columns_by_ngram))))


def unit_rows(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Normalize rows; a row shorter than 1e-6 becomes zero."""
    vectors = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(lengths < 1e-6, 0, vectors / np.maximum(lengths, 1e-6)).astype(np.float32)


def unit_sparse_rows(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Normalize rows of a sparse matrix; empty rows stay empty."""
    from scipy import sparse

    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return (sparse.diags(scale.astype(np.float32)) @ matrix).tocsr()


def log_counts(counts: sparse.csr_matrix, weights: NDArray[np.float32] | None = None) -> sparse.csr_matrix:
    """log(1 + count), times term weights of shape (n_terms,) if given."""
    from scipy import sparse

    damped = counts.copy()
    damped.data = np.log1p(damped.data)
    return damped if weights is None else (damped @ sparse.diags(weights)).tocsr()


# Our own, because it stops at the matrix's rank and takes a fifth less time than scikit-learn's randomized_svd, which
# finds as much: the union's recall differs by at most 0.005, either way, on the four labelled collections.
def truncated_svd(
    matrix: sparse.csr_matrix, rank: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Leading singular triplets by randomized subspace iteration (Halko, Martinsson and Tropp 2011).

    Args:
        matrix: shape (m, n).
        rank: maximum number of triplets; fewer if the matrix has lower numerical rank. An empty or all-zero matrix
            gives one
            triplet of zeros.

    Returns:
        Left vectors (m, r), singular values (r,) descending, right vectors (r, n). The largest entry of each right
        vector is
        positive, which fixes the sign.
    """
    if not matrix.nnz:
        left_vectors, right = np.zeros((matrix.shape[0], 1), np.float32), np.zeros((1, matrix.shape[1]), np.float32)
        return left_vectors, np.zeros(1, np.float32), right
    width = min(rank + _OVERSAMPLING, *matrix.shape)
    start = np.random.default_rng(_SEED).standard_normal((matrix.shape[1], width), dtype=np.float32)
    transposed = matrix.T.tocsr()
    basis = _orthonormal(matrix @ start)
    for _ in range(_POWER_ITERATIONS):
        basis = _orthonormal(matrix @ (transposed @ basis))
    projected = transposed @ basis
    squares, rotation = np.linalg.eigh(projected.T.astype(np.float64) @ projected)
    values = np.sqrt(np.maximum(squares[::-1][:rank], 0))
    n_significant = max(1, int(np.count_nonzero(values > _MIN_SINGULAR_VALUE * values[0])))
    rotation = rotation[:, ::-1][:, :n_significant].astype(np.float32)
    values = values[:n_significant].astype(np.float32)
    right = (projected @ rotation / values).T
    signs = np.where(right[np.arange(n_significant), np.abs(right).argmax(axis=1)] < 0, -1, 1).astype(np.float32)
    return (basis @ rotation) * signs, values, right * signs[:, None]


def _orthonormal(matrix: NDArray[Any]) -> NDArray[np.float32]:
    return np.linalg.qr(np.asarray(matrix, dtype=np.float32))[0]
