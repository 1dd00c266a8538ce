"""Overlap of two texts in character trigrams of their words: words match in part, as with typos or compounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.terms import TermSpace, inverse_frequency
from darklode.pipeline.judge.embedded import sums, with_data

if TYPE_CHECKING:
    from scipy import sparse

NGRAM_SIZE = 3

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


class CharacterOverlap:
    """Overlap in character trigrams, weighted by their idf in a tenant's chunks.

    Trigrams are those of `^term$`. The document frequency of a trigram is approximated by the sum of those of its
    terms, at most the number of chunks. A query's trigrams that the corpus does not contain count as the rarest.

    Args:
        space: terms of the tenant's chunks.
    """

    def __init__(self, space: TermSpace) -> None:
        self._space = space
        self._columns: dict[str, int] = {}
        vocabulary_trigrams = [trigrams(term) for term in space.vocabulary]
        for term_trigrams in vocabulary_trigrams:
            for trigram in term_trigrams:
                self._columns.setdefault(trigram, len(self._columns))
        self._trigrams_by_term = self._count(vocabulary_trigrams)
        n_chunks = self._trigrams_by_term.T @ space.document_frequency
        self._idf = inverse_frequency(np.minimum(n_chunks, space.n_chunks).astype(np.int64), space.n_chunks)
        self._rarest = float(inverse_frequency(np.zeros(1, np.int64), space.n_chunks)[0])

    def __call__(self, queries: Sequence[str], texts: Sequence[str], query: _Ints, text: _Ints) -> _Floats:
        """Cosine of the tf-idf vectors, and idf-weighted share of the query's trigrams in the text; shape (n_pairs, 2).

        Both are 0 for a query without trigrams.

        Args:
            queries: distinct queries.
            texts: distinct texts.
            query: row of each pair's query, shape (n_pairs,).
            text: row of each pair's text, shape (n_pairs,).
        """
        query_trigrams = [
            [trigram for term in self._space.tokenize(query_text) for trigram in trigrams(term)]
            for query_text in queries
        ]
        query_counts = self._count(query_trigrams)
        n_unknown = np.array([len(set(row) - self._columns.keys()) for row in query_trigrams], dtype=np.float64)
        text_counts = (self._space.count(texts) @ self._trigrams_by_term).tocsr()
        query_weights, text_weights = self._weigh(query_counts), self._weigh(text_counts)
        products = sums(text_weights, query_weights, text, query)
        query_lengths = np.sqrt(_squares(query_weights) + n_unknown * self._rarest**2)
        cosine = _divide(products, query_lengths[query] * np.sqrt(_squares(text_weights))[text])
        query_idf = with_data(query_counts, self._idf[query_counts.indices].astype(np.float64))
        shared = sums(with_data(text_counts, np.ones(text_counts.nnz)), query_idf, text, query)
        total = np.asarray(query_idf.sum(axis=1)).ravel() + n_unknown * self._rarest
        return np.stack([cosine, _divide(shared, total[query])], axis=1)

    def _count(self, trigrams_by_row: Iterable[Sequence[str]]) -> sparse.csr_matrix:
        """Count known trigrams, shape (n_rows, n_trigrams)."""
        from scipy import sparse

        columns = [
            [self._columns[trigram] for trigram in row_trigrams if trigram in self._columns]
            for row_trigrams in trigrams_by_row
        ]
        rows = np.repeat(np.arange(len(columns)), [len(row) for row in columns])
        flat = np.array([column for row in columns for column in row], dtype=np.int64)
        shape = (len(columns), max(1, len(self._columns)))
        return sparse.csr_matrix((np.ones(len(flat)), (rows, flat)), shape=shape)

    def _weigh(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        return with_data(counts, counts.data * self._idf[counts.indices])


def trigrams(term: str) -> list[str]:
    """Character trigrams of `^term$`."""
    marked = f"^{term}$"
    return [marked[start : start + NGRAM_SIZE] for start in range(len(marked) - NGRAM_SIZE + 1)]


def _squares(weights: sparse.csr_matrix) -> _Floats:
    """Sum of squares of each row, shape (n_rows,)."""
    return np.asarray(weights.multiply(weights).sum(axis=1)).ravel()


def _divide(part: _Floats, total: _Floats) -> _Floats:
    """Divide, 0 where the total is 0; rounded, so that the order of additions does not matter."""
    return np.asarray(np.round(np.divide(part, total, out=np.zeros(len(part)), where=total > 0), 9))
