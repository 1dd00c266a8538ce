"""The embedded judge: a formula over the corpus's own statistics. No model, no labels, no network.

It weighs three things that mean the same for every query: which share of what a query asks a chunk holds, how few
chunks would hold as much by chance, and how far the chunk's topic stands out from the corpus. Nothing is relative to
what the query found, so that a query may end without a positive.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.corpora import view
from darklode.pipeline.base.terms import TermSequences, TermSpace, inverse_frequency
from darklode.pipeline.judge.logistic import Logistic
from darklode.pipeline.judge.pairs import distinct
from darklode.pipeline.judge.port import Judge, replies_of
from darklode.pipeline.retrieve.encoders.lsa import fit_lsa, unit_rows
from darklode.pipeline.retrieve.retrievers.bm25 import FIXED_SETTINGS, Bm25, term_weights
from darklode.pipeline.retrieve.retrievers.port import Hits
from darklode.pipeline.retrieve.retrievers.topk import fixed_point

if TYPE_CHECKING:
    from scipy import sparse

VERSION = 2
FORMULA = Logistic((2.0, 1.0, 1.4), -5.8)
"""A logistic regression on four test collections, rounded (docs/judge.md)."""

FEEDBACK = 10
"""First finds of BM25 that speak for the query."""

WINDOW = 20
"""Terms in a window: about two sentences, stop words not counted."""

DIMENSIONS = 128
_BLOCK_ROWS = 1 << 15
_PAIRS_AT_ONCE = 1 << 13
_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Vectors = NDArray[np.int16]


class EmbeddedJudge(Judge):
    """A first look without a language model, and weak: compare no retrievers by its labels, least of all neural ones.

    It reads no labels. Its formula and its weights are the same for every corpus; they were fitted to four test
    collections (docs/judge.md: figures, also with each collection left out of the fit), for pools of which people call
    5 to 15 % relevant: the probability is roughly theirs. A pair's reply depends on its texts and on the corpus only,
    not on the pairs it comes with. On another processor or BLAS the fitted dimensions may differ in the last bits;
    `judge_id` then differs too.

    Args:
        space: the terms of the tenant's chunks, as `TenantChunks.batches` shows them.
        threshold: the probability from which a pair is relevant.
    """

    def __init__(self, space: TermSpace, threshold: float = 0.25) -> None:
        self._space = space
        self._threshold = threshold
        self._bm25 = Bm25(space)
        self._overlap = Overlap(space)
        self._meaning = SemanticSpace(space)

    @cached_property
    def judge_id(self) -> str:
        """`embedded-2:` and a hash of the formula's constants, the threshold and everything fitted on the corpus."""
        digest = hashlib.sha256(f"{FORMULA} {self._threshold}\n".encode())
        digest.update(self._space.fingerprint.encode())
        digest.update(self._meaning.vectors.astype("<i2").tobytes())
        return f"embedded-{VERSION}:{digest.hexdigest()[:16]}"

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Reply to each pair (see the port); grade, raw reply, tokens and error are always null."""
        starts = range(0, pairs.num_rows, _PAIRS_AT_ONCE)
        scored = [self.features(pairs.slice(start, _PAIRS_AT_ONCE)).probability for start in starts]
        probability = np.concatenate([np.empty(0), *scored])
        columns = {
            "relevant": pa.array(probability >= self._threshold),
            "probability": pa.array(probability.astype(np.float32)),
        }
        return replies_of(columns, pairs.num_rows)

    def features(self, pairs: pa.Table) -> Features:
        """What the formula is computed from, for rows of `PAIRS`."""
        unique_queries, query = distinct(pairs["query"])
        texts, chunk = distinct(view(pairs))
        queries, sequences = unique_queries.to_pylist(), self._space.sequences(texts.to_pylist())
        counts = sequences.counts(len(self._space.vocabulary))
        coverage, window, answered, information = self._words(queries, sequences, counts, query, chunk)
        bm25, meaning, distance = self._retrieval_features(queries, counts, query, chunk)
        return Features(coverage, window, bm25, meaning, answered, information, distance)

    def _words(
        self, queries: list[str], sequences: TermSequences, counts: sparse.csr_matrix, query: _Ints, chunk: _Ints
    ) -> tuple[_Floats, _Floats, _Floats, _Floats]:
        """Coverage, window, answered and information."""
        query_counts = self._space.count(queries)
        presence = with_data(counts, np.ones(counts.nnz))
        repeated = with_data(query_counts, self._overlap.idf[query_counts.indices] * query_counts.data)
        once = with_data(query_counts, self._overlap.idf[query_counts.indices])
        total, known_terms = (np.asarray(matches.sum(axis=1)).ravel() for matches in (repeated, once))
        coverage = _share(sums(presence, repeated, chunk, query), total[query])
        window = _share(best_window(sequences, repeated, chunk, query), total[query])
        answered = _share(sums(presence, once, chunk, query), (known_terms + self._unknown_words(queries))[query])
        return coverage, window, answered, best_window(sequences, once, chunk, query) / self._overlap.name

    def _unknown_words(self, queries: list[str]) -> _Floats:
        """What the words weigh that the corpus does not hold, shape (n_queries,)."""
        vocabulary = self._space.vocabulary
        strange = [len({term for term in self._space.tokenize(text) if term not in vocabulary}) for text in queries]
        return np.asarray(np.array(strange) * self._overlap.rarest, dtype=np.float64)

    def _retrieval_features(
        self, queries: list[str], counts: sparse.csr_matrix, query: _Ints, chunk: _Ints
    ) -> tuple[_Floats, _Floats, _Floats]:
        """BM25, meaning and distance: what depends on what the query finds in the corpus."""
        query_counts = self._space.count(queries)
        hits = self._bm25.search(queries, FEEDBACK)
        top = np.nan_to_num(hits.scores).max(axis=1, initial=0)
        score = sums(self._overlap.term_scores(counts), query_counts, chunk, query)
        moved = self._meaning.with_feedback(self._meaning.project(query_counts), hits)
        cosine = row_products(moved[query], self._meaning.project(counts)[chunk])
        mean, deviation = self._meaning.chance(moved)
        distance = np.divide(
            cosine - mean[query], deviation[query], out=np.zeros(len(query)), where=deviation[query] > 0
        )
        return _share(score, top[query]), _share(cosine, self._meaning.best_similarity(moved)[query]), distance


@dataclass(frozen=True)
class Features:
    """What is seen of each pair, each of shape (n_pairs,).

    The first four are from 0 to 1 and tell a query's own candidates apart: adaptive judging learns from them. The
    judge's formula has the last three, which mean the same for every query.

    Attributes:
        coverage: idf-weighted share of the query's terms that the chunk holds; terms new to the corpus don't count.
        window: the same within the best 20 terms of the chunk.
        bm25: BM25 score ÷ the query's best score in the corpus.
        meaning: LSA cosine with the query and its first ten finds ÷ the query's best cosine in the corpus.
        answered: like coverage, but words new to the corpus count as the rarest there are, and repeated ones once.
        information: summed idf of the query's terms in the best 20 terms of the chunk ÷ logarithm of the number of
            chunks. At 1 one chunk of the corpus would hold these terms by chance, were terms independent; above it
            less than one.
        distance: of the LSA cosine from its mean over all chunks of the corpus, in standard deviations.
    """

    coverage: _Floats
    window: _Floats
    bm25: _Floats
    meaning: _Floats
    answered: _Floats
    information: _Floats
    distance: _Floats

    @property
    def weighted(self) -> _Floats:
        """What the formula weighs: answered, information, log(1 + distance), shape (n_pairs, 3)."""
        return np.stack([self.answered, self.information, np.log1p(np.maximum(self.distance, 0))], axis=1)

    @property
    def probability(self) -> _Floats:
        """By the formula."""
        return FORMULA.probability(self.weighted)


class Overlap:
    """The weights of a corpus's terms, and what they add to a BM25 score.

    Attributes:
        idf: of each term, shape (n_terms,).
        rarest: idf of a term that no chunk holds.
        name: what it takes to name one chunk of the corpus, log(n_chunks + 1), in the unit of idf.
    """

    def __init__(self, space: TermSpace) -> None:
        self.idf: _Floats = space.idf.astype(np.float64)
        self.rarest = float(inverse_frequency(np.zeros(1, np.int64), space.n_chunks)[0])
        self.name = float(np.log(max(space.n_chunks, 1) + 1))
        lengths = np.asarray(space.counts.sum(axis=1)).ravel()
        self._average = float(lengths.mean()) if lengths.any() else 1.0

    def term_scores(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        """What each term adds to a chunk's score, in the shape of `counts`."""
        row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        length = np.bincount(row, counts.data, minlength=counts.shape[0])[row]
        weights = term_weights(counts.data, length / self._average, FIXED_SETTINGS)
        return with_data(counts, self.idf[counts.indices] * weights)


def with_data(matrix: sparse.csr_matrix, data: NDArray[np.floating]) -> sparse.csr_matrix:
    """The same cells with other values."""
    from scipy import sparse

    return sparse.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def sums(chunks: sparse.csr_matrix, queries: sparse.csr_matrix, chunk: _Ints, query: _Ints) -> _Floats:
    """Inner product of row `chunk[i]` of `chunks` with row `query[i]` of `queries`, shape (n_pairs,)."""
    products = (chunks @ queries.T).tocsr()
    return np.asarray(products[chunk, query], dtype=np.float64).ravel()


def best_window(sequences: TermSequences, weights: sparse.csr_matrix, chunk: _Ints, query: _Ints) -> _Floats:
    """The largest sum of weights of distinct query terms within `WINDOW` terms of the chunk, shape (n_pairs,).

    Args:
        sequences: the chunks.
        weights: what a term weighs in a query, shape (n_queries, n_terms), columns sorted.
        chunk: row of each pair's chunk.
        query: row of each pair's query.
    """
    pair, position, term, weight = _hits(sequences, weights, chunk, query)
    previous = _previous(pair, term)
    total = np.zeros(len(pair))
    for shift in range(min(WINDOW, len(pair))):
        start = np.arange(len(pair) - shift)
        end = start + shift
        inside = (pair[end] == pair[start]) & (position[end] - position[start] < WINDOW)
        if not inside.any():
            break
        total[start] += np.where(inside & (previous[end] < start), weight[end], 0.0)
    best_scores = np.zeros(len(chunk))
    np.maximum.at(best_scores, pair, total)
    return best_scores


def _hits(
    sequences: TermSequences, weights: sparse.csr_matrix, chunk: _Ints, query: _Ints
) -> tuple[_Ints, _Ints, _Ints, _Floats]:
    """Where a pair's chunk holds a term of its query: pair, position, term, weight; by pair, then position."""
    lengths = sequences.starts[chunk + 1] - sequences.starts[chunk]
    pair = np.repeat(np.arange(len(chunk)), lengths)
    position = np.arange(len(pair)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    term = sequences.columns[sequences.starts[chunk[pair]] + position]
    query_terms = np.unique(weights.indices)
    slot = np.full(weights.shape[1], len(query_terms))
    slot[query_terms] = np.arange(len(query_terms))
    table = np.zeros((weights.shape[0], len(query_terms) + 1))
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


class SemanticSpace:
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
        self._sum = self.vectors.sum(axis=0, dtype=np.float64)  # whole numbers below 2⁵³, and so are the squares: exact
        wide = (block.astype(np.float64) for block in blocks)
        self._squares = sum((block.T @ block for block in wide), np.zeros((self._encoder.dimensions,) * 2))

    def project(self, counts: sparse.csr_matrix) -> _Vectors:
        """Vectors of texts given by their term counts, shape (n_texts, dimensions); zero where nothing is known."""
        return fixed_point(self._encoder.encode_counts(counts))

    def with_feedback(self, queries: _Vectors, hits: Hits) -> _Vectors:
        """Queries moved to the middle between them and the mean of their first finds (Rocchio 1971), shape kept."""
        hit = hits.rows >= 0
        n_found = np.maximum(hit.sum(axis=1, keepdims=True), 1)
        moved = queries * n_found
        for rank in range(hits.rows.shape[1]):
            finds = self.vectors[hits.rows[:, rank]].astype(np.int64)
            moved = moved + finds * hit[:, rank : rank + 1]
        return fixed_point(unit_rows(moved))

    def chance(self, queries: _Vectors) -> tuple[_Floats, _Floats]:
        """Mean and standard deviation of each query's inner products with all chunks, (n_queries,) each."""
        n = max(len(self.vectors), 1)
        mean = queries @ self._sum / n
        square = np.einsum("ij,jk,ik->i", queries.astype(np.float64), self._squares, queries.astype(np.float64)) / n
        return mean, np.sqrt(np.maximum(square - mean**2, 0))

    def best_similarity(self, queries: _Vectors) -> NDArray[np.int64]:
        """Each query's largest inner product with any chunk of the corpus, at least 0, shape (n_queries,)."""
        query_rows = queries.astype(np.float32)
        max_similarity = np.zeros(len(queries), dtype=np.float32)
        for start in range(0, len(self.vectors), _BLOCK_ROWS):
            right = self.vectors[start : start + _BLOCK_ROWS].astype(np.float32)
            max_similarity = np.maximum(max_similarity, (query_rows @ right.T).max(axis=1))
        return max_similarity.astype(np.int64)


def row_products(left_vectors: _Vectors, right: _Vectors) -> NDArray[np.int64]:
    """Inner product of row i with row i, shape (n_rows,)."""
    return np.asarray(np.einsum("ij,ij->i", left_vectors.astype(np.int64), right.astype(np.int64)))


def _share(part: NDArray[np.generic], total: NDArray[np.generic]) -> _Floats:
    """part ÷ whole within 0 and 1; 0 where the whole is 0."""
    denominator = np.asarray(total, dtype=np.float64)
    shares = np.divide(part, denominator, out=np.zeros(len(denominator)), where=denominator > 0)
    return np.asarray(np.clip(shares, 0.0, 1.0))
