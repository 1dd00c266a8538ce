"""The BM25 index: what every term adds to the score of every chunk that holds it, in the layout of bm25s."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import log
from typing import Any

import bm25s
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.terms import TermSpace
from schemas.settings import Bm25Settings

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG

Index = Any
"""A `bm25s.BM25` (untyped) with its scores, by term: `data`, `indices` (chunks) and `indptr`."""

Weights = NDArray[np.float64]

DELTA = {"bm25l": 0.5, "bm25+": 1.0}
"""What a term counts at least, by method; from the papers, and rank-bm25's defaults as well."""

_BLOCK_CHUNKS = 8_192

_IDF: dict[str, Callable[[int, int], float]] = {
    "robertson": lambda df, n: log(max((n - df + 0.5) / (df + 0.5), 1)),
    "lucene": lambda df, n: log(1 + (n - df + 0.5) / (df + 0.5)),
    "atire": lambda df, n: log(n / df),
    "bm25l": lambda df, n: log((n + 1) / (df + 0.5)),
    "bm25+": lambda df, n: log((n + 1) / df),
}


def idf(method: str, document_frequency: NDArray[np.int64], n_chunks: int) -> Weights:
    """How rare each term is, shape (n_terms,); none below 0. Formulas: Kamphuis et al. 2020, table 1."""
    values, places = np.unique(document_frequency, return_inverse=True)
    return np.array([_IDF[method](int(df), n_chunks) for df in values])[places]


def _term_weights(counts: NDArray[np.float32], lengths: Weights, settings: Bm25Settings) -> Weights:
    """What a term's number of occurrences is worth, before its idf; lengths as multiples of the mean."""
    k1, b, delta = settings.k1, settings.b, DELTA.get(settings.method, 0.0)
    norm = 1 - b + b * lengths
    if settings.method == "bm25l":
        spread = counts / norm
        return (k1 + 1) * (spread + delta) / (k1 + spread + delta)
    saturated = counts / (k1 * norm + counts)
    if settings.method in ("robertson", "lucene"):
        return saturated
    return counts * (k1 + 1) / (k1 * norm + counts) + delta


def _absent_weight(settings: Bm25Settings) -> float:
    """The same of a term that a chunk does not hold."""
    delta = DELTA.get(settings.method, 0.0)
    if settings.method == "bm25l":
        return (settings.k1 + 1) * delta / (settings.k1 + delta)
    return delta


def build_index(terms: TermSpace, settings: Bm25Settings) -> Index:
    """The index that bm25s's own `index` would make, made of whole columns.

    As there, a chunk's weight for a term is kept less what a chunk without the term gets (`nonoccurrence_array`, None
    but for bm25l and bm25+), so that the index stays sparse.
    """
    rarity = idf(settings.method, terms.document_frequency, terms.n_chunks)
    absent = (rarity * _absent_weight(settings)).astype(np.float32) if settings.method in DELTA else None
    weights = _weights(terms, settings, rarity.astype(np.float32), absent)
    matrix = sparse.csr_matrix((weights, terms.counts.indices, terms.counts.indptr), terms.counts.shape).tocsc()
    engine = bm25s.BM25(
        k1=settings.k1, b=settings.b, delta=DELTA.get(settings.method, 0.5), method=settings.method, backend="numpy"
    )
    engine.scores = {
        "data": matrix.data,
        "indices": matrix.indices,
        "indptr": matrix.indptr,
        "num_docs": terms.n_chunks,
    }
    engine.vocab_dict = dict(terms.vocabulary)
    engine.unique_token_ids_set = set(terms.vocabulary.values())
    engine.nonoccurrence_array = absent
    return engine


def _weights(
    terms: TermSpace, settings: Bm25Settings, rarity: NDArray[np.float32], absent: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """The weight of each count of `terms`, block by block, so that no float64 array grows with the corpus."""
    counts, starts = terms.counts, terms.counts.indptr
    lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    lengths /= lengths.mean() if counts.nnz else 1
    weights = np.empty(counts.nnz, dtype=np.float32)
    for first in range(0, terms.n_chunks, _BLOCK_CHUNKS):
        last = min(first + _BLOCK_CHUNKS, terms.n_chunks)
        block = slice(starts[first], starts[last])
        spread = np.repeat(lengths[first:last], np.diff(starts[first : last + 1]))
        columns = counts.indices[block]
        found = rarity[columns] * _term_weights(counts.data[block], spread, settings)
        weights[block] = found if absent is None else found - absent[columns]
    return weights
