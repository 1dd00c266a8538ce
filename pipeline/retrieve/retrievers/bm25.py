"""BM25 over the terms of a corpus: its weights, the index of bm25s made of whole columns, and a search of our own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import isqrt, log
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.schemas.pooling import Bm25Settings

Index = Any
"""A `bm25s.BM25` (untyped) with its scores, by term: `data`, `indices` (chunks) and `indptr`."""


def engines() -> Any:
    """The package bm25s, quiet."""
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG
    return bm25s


Weights = NDArray[np.float64]

DELTA = {"bm25l": 0.5, "bm25+": 1.0}
"""What a term counts at least, by method; from the papers, and rank-bm25's defaults as well."""

FIXED_SETTINGS = Bm25Settings(engine="bm25s", method="lucene", k1=1.5, b=0.75, stemmer="english", stop_words=True)
"""Whatever the settings' defaults are: lists and labels of the embedded parts must not move with them."""

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


def term_weights(counts: NDArray[np.float32], lengths: Weights, settings: Bm25Settings) -> Weights:
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
    from scipy import sparse

    rarity = idf(settings.method, terms.document_frequency, terms.n_chunks)
    absent = (rarity * _absent_weight(settings)).astype(np.float32) if settings.method in DELTA else None
    weights = _weights(terms, settings, rarity.astype(np.float32), absent)
    matrix = sparse.csr_matrix((weights, terms.counts.indices, terms.counts.indptr), terms.counts.shape).tocsc()
    engine = engines().BM25(
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
        block_weights = rarity[columns] * term_weights(counts.data[block], spread, settings)
        weights[block] = block_weights if absent is None else block_weights - absent[columns]
    return weights


_LAST_ROW = 0xFFFFFFFF
_NOTHING = np.iinfo(np.int64).max
_FEW_CELLS = 1 << 16  # so few are handled as a whole: calls cost more than cells


class Bm25(Retriever):
    """BM25 (Robertson and Zaragoza 2009).

    A chunk is a hit when it scores more than a chunk without any term of the query: with every method but robertson
    and atire, which give terms of most or all chunks the weight 0, that is a chunk with one of the query's terms.

    bm25s itself breaks ties as it happens, and compiles for 6 s before its fast search; this one is as fast without.

    Args:
        terms: the corpus.
        settings: `engine` does not matter here, stemmer and stop words are those of `terms`.
    """

    name = "bm25"

    def __init__(self, terms: TermSpace, settings: Bm25Settings = FIXED_SETTINGS) -> None:
        self._open(build_index(terms, settings), terms.analyzer)

    @classmethod
    def from_index(cls, index: Index, analyzer: Analyzer) -> Self:
        """BM25 over an index made before, its arrays possibly memory-mapped.

        Args:
            index: from `build_index`.
            analyzer: the one that the index's terms came from.
        """
        retriever = cls.__new__(cls)
        retriever._open(index, analyzer)
        return retriever

    def _open(self, index: Index, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._vocabulary: dict[str, int] = index.vocab_dict
        self._n_chunks = int(index.scores["num_docs"])
        # Plain views: cutting a memmap makes a memmap, which costs more than to add up a short posting list.
        self._weights = np.asarray(index.scores["data"])
        self._chunks = np.asarray(index.scores["indices"])
        self._starts: list[int] = index.scores["indptr"].tolist()
        self._absent: NDArray[np.float32] | None = index.nonoccurrence_array

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        k = min(depth, self._n_chunks)
        keys = np.full((len(queries), k), _NOTHING, dtype=np.int64)
        blocks = score_blocks(self._n_chunks, k)
        buffer = blocks.reshape(-1)
        for number, query in enumerate(queries):
            terms = self._terms(query)
            if terms:
                self._score(terms, buffer)
                best_hits = best_keys(blocks, k)
                keys[number, : len(best_hits)] = best_hits
        return hits_of(keys)

    def _terms(self, query: str) -> list[int]:
        """The query's known terms, repeated as in the query; sorted, because the order decides the last bits."""
        vocabulary = self._vocabulary
        return sorted(vocabulary[term] for term in self._analyzer.tokenize(query) if term in vocabulary)

    def _score(self, terms: list[int], scores: NDArray[np.float32]) -> None:
        """Write the scores of all chunks, 0 for those that are no hits."""
        scores.fill(0)
        lists = [slice(self._starts[term], self._starts[term + 1]) for term in terms]
        chunks, weights = [self._chunks[own] for own in lists], [self._weights[own] for own in lists]
        if sum(map(len, chunks)) <= _FEW_CELLS:  # one call costs less than several
            chunks, weights = [np.concatenate(chunks, dtype=np.intp)], [np.concatenate(weights)]
        for some, added in zip(chunks, weights, strict=True):
            np.add.at(scores, some.astype(np.intp, copy=False), added)  # a third slower with narrower indices
        if self._absent is not None:
            np.add(scores, self._absent[terms].sum(), out=scores, where=scores > 0)


def score_blocks(n_rows: int, k: int) -> NDArray[np.float32]:
    """Zeros for the scores of `n_rows` rows, in C order, of shape (block size, n_blocks ≥ k).

    Row r is the cell that the flat array has at r, so block j holds the rows j, j + n_blocks, j + 2·n_blocks, …; cells
    past `n_rows` must stay 0. `best_keys` has about as much work between blocks of this size as inside of them.
    """
    size = max(1, isqrt(n_rows // max(1, k)))
    return np.zeros((size, -(-n_rows // size)), dtype=np.float32)


def best_keys(blocks: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Keys of the `k` highest scores above 0, in no order, ties to the lower row; fewer where there are fewer.

    Scores above 0 compare like their bits: a key, row − 2³²·bits, falls with the score and, at equal scores, grows with
    the row.

    Args:
        blocks: filled `score_blocks`; no score is below 0.
        k: the same as there, at least 1.
    """
    rows = _candidates(blocks, k)
    keys = rows - (blocks.reshape(-1)[rows].view(np.int32).astype(np.int64) << 32)
    if len(keys) > k:
        keys.partition(k - 1)
    return keys[:k]


def hits_of(keys: NDArray[np.int64]) -> Hits:
    """Hits from the keys of each query, shape (n_queries, k), filled up with `_NOTHING`; sorts them in place."""
    keys.sort(axis=1)
    is_hit = keys != _NOTHING
    rows = np.where(is_hit, keys & _LAST_ROW, -1)
    bits = ((rows - keys) >> 32).astype(np.int32)
    return Hits(rows, np.where(is_hit, bits.view(np.float32), np.float32(np.nan)))


def _candidates(blocks: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Few rows among which the `k` best are.

    Each of the k blocks with the highest maxima holds a score as high as the lowest of these maxima. No lower score can
    be among the k best, and so no block with a lower maximum.
    """
    highest = blocks.max(axis=0)
    n_blocks = len(highest)
    bound = np.partition(highest, n_blocks - k)[n_blocks - k]
    if bound == 0:
        return np.flatnonzero(blocks)
    if blocks.size <= _FEW_CELLS:
        rows: NDArray[np.int64] = (blocks >= bound).reshape(-1).nonzero()[0]
        return rows
    columns = np.flatnonzero(highest >= bound)
    lines, places = np.divmod(np.flatnonzero(blocks[:, columns] >= bound), len(columns))
    return lines * n_blocks + columns[places]
