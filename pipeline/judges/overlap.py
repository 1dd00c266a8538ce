"""How much of a query's words a chunk holds: coverage, best window, BM25."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.terms import TermSpace

WINDOW = 20
"""Terms in a window: about two sentences, stop words not counted."""

K1, B = 1.5, 0.75
_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tokens:
    """Texts as term columns, one after the other; text i is `columns[starts[i]:starts[i + 1]]`."""

    columns: _Ints
    starts: _Ints

    @classmethod
    def of(cls, space: TermSpace, texts: Sequence[str]) -> Tokens:
        """Known terms of `texts`, in order."""
        known = space.vocabulary
        rows = [[known[term] for term in space.tokenize(text) if term in known] for text in texts]
        starts = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        return cls(np.array([column for row in rows for column in row], dtype=np.int64), starts.astype(np.int64))

    def counts(self, n_terms: int) -> sparse.csr_matrix:
        """CSR matrix of shape (n_texts, n_terms), float32, columns sorted within a row."""
        ones = np.ones(len(self.columns), dtype=np.float32)
        matrix = sparse.csr_matrix((ones, self.columns, self.starts), shape=(len(self.starts) - 1, n_terms), copy=True)
        matrix.sum_duplicates()
        return matrix


class Overlap:
    """The weights of a corpus's terms, and what they add to a BM25 score (the formula of `Bm25`)."""

    def __init__(self, space: TermSpace) -> None:
        self.idf: _Floats = space.idf.astype(np.float64)
        lengths = np.asarray(space.counts.sum(axis=1)).ravel()
        self._average = float(lengths.mean()) if lengths.any() else 1.0

    def impacts(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        """What each term adds to a chunk's score, in the shape of `counts`."""
        row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        length = np.bincount(row, counts.data, minlength=counts.shape[0])[row]
        saturation = counts.data + K1 * (1 - B + B * length / self._average)
        impact = self.idf[counts.indices] * counts.data / saturation
        return with_data(counts, impact)


def with_data(matrix: sparse.csr_matrix, data: NDArray[np.floating]) -> sparse.csr_matrix:
    """The same cells with other values."""
    return sparse.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def sums(chunks: sparse.csr_matrix, queries: sparse.csr_matrix, chunk: _Ints, query: _Ints) -> _Floats:
    """Inner product of row `chunk[i]` of `chunks` with row `query[i]` of `queries`, shape (n_pairs,)."""
    products = (chunks @ queries.T).tocsr()
    return np.asarray(products[chunk, query], dtype=np.float64).ravel()


def best_window(tokens: Tokens, weights: sparse.csr_matrix, chunk: _Ints, query: _Ints) -> _Floats:
    """The largest sum of weights of distinct query terms within `WINDOW` terms of the chunk, shape (n_pairs,).

    Args:
        tokens: the chunks.
        weights: what a term weighs in a query, shape (n_queries, n_terms), columns sorted.
        chunk: row of each pair's chunk.
        query: row of each pair's query.
    """
    pair, position, term, weight = _hits(tokens, weights, chunk, query)
    previous = _previous(pair, term)
    total = np.zeros(len(pair))
    for shift in range(min(WINDOW, len(pair))):
        start = np.arange(len(pair) - shift)
        end = start + shift
        inside = (pair[end] == pair[start]) & (position[end] - position[start] < WINDOW)
        if not inside.any():
            break
        total[start] += np.where(inside & (previous[end] < start), weight[end], 0.0)
    best = np.zeros(len(chunk))
    np.maximum.at(best, pair, total)
    return best


def _hits(
    tokens: Tokens, weights: sparse.csr_matrix, chunk: _Ints, query: _Ints
) -> tuple[_Ints, _Ints, _Ints, _Floats]:
    """Where a pair's chunk holds a term of its query: pair, position, term, weight; by pair, then position."""
    lengths = tokens.starts[chunk + 1] - tokens.starts[chunk]
    pair = np.repeat(np.arange(len(chunk)), lengths)
    position = np.arange(len(pair)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    term = tokens.columns[tokens.starts[chunk[pair]] + position]
    asked = np.unique(weights.indices)
    slot = np.full(weights.shape[1], len(asked))
    slot[asked] = np.arange(len(asked))
    table = np.zeros((weights.shape[0], len(asked) + 1))
    row = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
    table[row, slot[weights.indices]] = weights.data
    weight = table[query[pair], slot[term]]
    hit = np.flatnonzero(weight)
    return pair[hit], position[hit], term[hit], weight[hit]


def _previous(pair: _Ints, term: _Ints) -> _Ints:
    """Index of the same pair's previous hit of the same term, -1 for the first."""
    order = np.lexsort((term, pair))  # stable: hits of one term stay in order
    same = (pair[order][1:] == pair[order][:-1]) & (term[order][1:] == term[order][:-1])
    previous = np.full(len(pair), -1, dtype=np.int64)
    previous[order[1:][same]] = order[:-1][same]
    return previous
