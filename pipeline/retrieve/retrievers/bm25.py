"""BM25: term weights, a vectorized builder of bm25s indexes, and a reproducible search over them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import isqrt, log
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.bm25s_import import import_bm25s
from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.schemas.pooling import Bm25Settings

Index = Any
"""A `bm25s.BM25` (untyped). Its `scores` are a CSC matrix: `data`, `indices` (chunk rows) and `indptr` (by term)."""


def engines() -> Any:
    """Import bm25s and set its logger to warnings."""
    bm25s = import_bm25s()
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG
    return bm25s


Weights = NDArray[np.float64]

DELTA = {"bm25l": 0.5, "bm25+": 1.0}
"""The parameter δ by method; from the papers, also rank-bm25's defaults."""

FIXED_SETTINGS = Bm25Settings(engine="bm25s", method="lucene", k1=1.5, b=0.75, stemmer="english", stop_words=True)
"""BM25 for feedback retrieval; fixed, so that its results do not change with the defaults of the settings."""

_BLOCK_CHUNKS = 8_192  # chunks whose weights are computed at a time, to bound memory

_IDF: dict[str, Callable[[int, int], float]] = {
    "robertson": lambda df, n: log(max((n - df + 0.5) / (df + 0.5), 1)),
    "lucene": lambda df, n: log(1 + (n - df + 0.5) / (df + 0.5)),
    "atire": lambda df, n: log(n / df),
    "bm25l": lambda df, n: log((n + 1) / (df + 0.5)),
    "bm25+": lambda df, n: log((n + 1) / df),
}


def idf(method: str, document_frequency: NDArray[np.int64], n_chunks: int) -> Weights:
    """Inverse document frequencies, at least 0, shape (n_terms,). Formulas: Kamphuis et al. 2020, table 1."""
    frequencies, inverse = np.unique(document_frequency, return_inverse=True)
    return np.array([_IDF[method](int(df), n_chunks) for df in frequencies])[inverse]


def term_weights(counts: NDArray[np.float32], lengths: Weights, settings: Bm25Settings) -> Weights:
    """Weight of a term's occurrences in a chunk, without the idf factor.

    Args:
        counts: occurrences of the term in the chunk, one per posting.
        lengths: length of the chunk as a multiple of the mean length, same shape.
        settings: method, k1 and b.
    """
    k1, b, delta = settings.k1, settings.b, DELTA.get(settings.method, 0.0)
    norm = 1 - b + b * lengths
    if settings.method == "bm25l":
        normalized = counts / norm
        return (k1 + 1) * (normalized + delta) / (k1 + normalized + delta)
    saturated = counts / (k1 * norm + counts)
    if settings.method in ("robertson", "lucene"):
        return saturated
    return counts * (k1 + 1) / (k1 * norm + counts) + delta


def _absent_weight(settings: Bm25Settings) -> float:
    """`term_weights` of a term that does not occur in the chunk; above 0 for bm25l and bm25+ only."""
    delta = DELTA.get(settings.method, 0.0)
    if settings.method == "bm25l":
        return (settings.k1 + 1) * delta / (settings.k1 + delta)
    return delta


def build_index(terms: TermSpace, settings: Bm25Settings) -> Index:
    """Build the index that bm25s's own `index` would, from the count matrix.

    As in bm25s, each stored weight is reduced by the weight of a chunk without the term (`nonoccurrence_array`, None
    except for bm25l and bm25+), which keeps the index sparse.
    """
    from scipy import sparse

    rarity = idf(settings.method, terms.document_frequency, terms.n_chunks)
    absent = (rarity * _absent_weight(settings)).astype(np.float32) if settings.method in DELTA else None
    weights = _posting_weights(terms, settings, rarity.astype(np.float32), absent)
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


def _posting_weights(
    terms: TermSpace, settings: Bm25Settings, rarity: NDArray[np.float32], absent: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Weight of each posting (stored count) of `terms`, in blocks, so that no float64 array grows with the corpus."""
    counts, starts = terms.counts, terms.counts.indptr
    lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    lengths /= lengths.mean() if counts.nnz else 1
    weights = np.empty(counts.nnz, dtype=np.float32)
    for first in range(0, terms.n_chunks, _BLOCK_CHUNKS):
        last = min(first + _BLOCK_CHUNKS, terms.n_chunks)
        block = slice(starts[first], starts[last])
        posting_lengths = np.repeat(lengths[first:last], np.diff(starts[first : last + 1]))
        columns = counts.indices[block]
        block_weights = rarity[columns] * term_weights(counts.data[block], posting_lengths, settings)
        weights[block] = block_weights if absent is None else block_weights - absent[columns]
    return weights


_ROW_MASK = 0xFFFFFFFF  # lower 32 bits of a key, its row
_NO_HIT = np.iinfo(np.int64).max  # key of a missing hit; sorts after all others
_MAX_CELLS_AT_ONCE = 1 << 16  # up to this number, one call on everything is faster than several on parts


class Bm25(Retriever):
    """BM25 (Robertson and Zaragoza 2009).

    A chunk is a hit if it scores more than a chunk without any query term. Except for robertson and atire, which give
    weight 0 to terms of most or all chunks, these are the chunks with at least one query term.

    bm25s's own search breaks ties arbitrarily and compiles for 6 s before the first query; this one is as fast, and
    equal scores rank by ascending row.

    Args:
        terms: terms of the corpus.
        settings: method and parameters; `engine` is ignored, and stemmer and stop words are those of `terms`.
    """

    name = "bm25"

    def __init__(self, terms: TermSpace, settings: Bm25Settings = FIXED_SETTINGS) -> None:
        self._open(build_index(terms, settings), terms.analyzer)

    @classmethod
    def from_index(cls, index: Index, analyzer: Analyzer) -> Self:
        """Open an existing index; its arrays may be memory-mapped.

        Args:
            index: index from `build_index`.
            analyzer: the analyzer with which the index was built; with another one, query terms would not match.
        """
        retriever = cls.__new__(cls)
        retriever._open(index, analyzer)
        return retriever

    def _open(self, index: Index, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._vocabulary: dict[str, int] = index.vocab_dict
        self._n_chunks = int(index.scores["num_docs"])
        # Plain array views, because slicing a memmap takes longer than summing a short posting list.
        self._weights = np.asarray(index.scores["data"])
        self._chunks = np.asarray(index.scores["indices"])
        self._starts: list[int] = index.scores["indptr"].tolist()
        self._absent: NDArray[np.float32] | None = index.nonoccurrence_array

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        k = min(depth, self._n_chunks)
        keys = np.full((len(queries), k), _NO_HIT, dtype=np.int64)
        blocks = score_blocks(self._n_chunks, k)
        buffer = blocks.reshape(-1)
        for number, query in enumerate(queries):
            terms = self._terms(query)
            if terms:
                self._score(terms, buffer)
                best_hits = best_keys(blocks, k)
                keys[number, : len(best_hits)] = best_hits
        return hits_of(keys)

    def scores(self, query: str) -> NDArray[np.float32]:
        """Scores of all chunks for a query, shape (n_chunks,); 0 for chunks that are no hits."""
        scores, terms = np.zeros(self._n_chunks, np.float32), self._terms(query)
        if terms:
            self._score(terms, scores)
        return scores

    def _terms(self, query: str) -> list[int]:
        """Known term ids of the query, with repetitions; sorted, because the order of a sum changes its last bits."""
        vocabulary = self._vocabulary
        return sorted(vocabulary[term] for term in self._analyzer.tokenize(query) if term in vocabulary)

    def _score(self, terms: list[int], scores: NDArray[np.float32]) -> None:
        """Write the scores of all chunks to `scores`; 0 for chunks that are no hits."""
        scores.fill(0)
        posting_lists = [slice(self._starts[term], self._starts[term + 1]) for term in terms]
        chunks = [self._chunks[postings] for postings in posting_lists]
        weights = [self._weights[postings] for postings in posting_lists]
        if sum(map(len, chunks)) <= _MAX_CELLS_AT_ONCE:  # one call costs less than several
            chunks, weights = [np.concatenate(chunks, dtype=np.intp)], [np.concatenate(weights)]
        for term_chunks, term_scores in zip(chunks, weights, strict=True):
            np.add.at(scores, term_chunks.astype(np.intp, copy=False), term_scores)  # narrower indices are 1/3 slower
        if self._absent is not None:
            np.add(scores, self._absent[terms].sum(), out=scores, where=scores > 0)


def score_blocks(n_rows: int, k: int) -> NDArray[np.float32]:
    """A zero array for the scores of `n_rows` rows, of shape (block size, n_blocks ≥ k); each column is a block.

    Row r is element r of the flattened array, so block j has the rows j, j + n_blocks, j + 2·n_blocks, …; elements
    past `n_rows` must stay 0. The block size balances the work of `best_keys` between and within blocks.
    """
    size = max(1, isqrt(n_rows // max(1, k)))
    return np.zeros((size, -(-n_rows // size)), dtype=np.float32)


def best_keys(blocks: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Keys of the `k` highest scores above 0, unordered, at equal scores those of lower rows; may be fewer than `k`.

    Positive floats compare like their bit patterns. So the key row − 2³²·bits is smaller for a higher score and, at
    equal scores, for a lower row.

    Args:
        blocks: filled `score_blocks`; no score is below 0.
        k: the `k` that was passed to `score_blocks`, at least 1.
    """
    rows = _candidate_rows(blocks, k)
    keys = rows - (blocks.reshape(-1)[rows].view(np.int32).astype(np.int64) << 32)
    if len(keys) > k:
        keys.partition(k - 1)
    return keys[:k]


def hits_of(keys: NDArray[np.int64]) -> Hits:
    """Hits from the keys of each query, shape (n_queries, k), padded with `_NO_HIT`. Sorts `keys` in place."""
    keys.sort(axis=1)
    is_hit = keys != _NO_HIT
    rows = np.where(is_hit, keys & _ROW_MASK, -1)
    bits = ((rows - keys) >> 32).astype(np.int32)
    return Hits(rows, np.where(is_hit, bits.view(np.float32), np.float32(np.nan)))


def _candidate_rows(blocks: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """A small set of rows that includes the `k` best.

    The k-th highest block maximum is a lower bound of the k-th highest score: k blocks have a score that reaches it.
    So lower scores, and blocks with a lower maximum, are skipped.
    """
    maxima = blocks.max(axis=0)
    n_blocks = len(maxima)
    bound = np.partition(maxima, n_blocks - k)[n_blocks - k]
    if bound == 0:
        return np.flatnonzero(blocks)
    if blocks.size <= _MAX_CELLS_AT_ONCE:
        rows: NDArray[np.int64] = (blocks >= bound).reshape(-1).nonzero()[0]
        return rows
    columns = np.flatnonzero(maxima >= bound)
    row_in_block, column_index = np.divmod(np.flatnonzero(blocks[:, columns] >= bound), len(columns))
    return row_in_block * n_blocks + columns[column_index]
