"""The embedded judge: a formula over the words that query and chunk share, without a model, labels or network.

It weighs two features that mean the same for every query: the share of the query's information that a chunk contains,
and how unlikely that is by chance. Nothing is relative to the query's other candidates, so a query may end without a
positive. Further features of a pair, which the learned judge and adaptive judging read, are computed on request.
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

from darklode.pipeline.base.chunk_texts import view
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

VERSION = 3
FORMULA = Logistic((3.0, 0.9), -3.15)
"""Logistic regression on six test collections, rounded. The ratio of the two weights, 0.3, was chosen on the same
collections. Fitted without the collection that is measured, the formula is ahead of the share of the query's terms
alone on five of the six (docs/explanation/judges.md).
"""

THRESHOLD = 0.33
"""Minimum probability of a relevant pair: between 0.3 and 0.35, which have the highest mean kappa over the same
collections. It is also the default of `judge.threshold` for this judge (`kinds/embedded.py`).
"""

FEEDBACK_RESULTS = 10
"""Number of BM25 results used for pseudo-relevance feedback, in the features `meaning` and `distance`."""

WINDOW_TERMS = 20
"""Window length in terms without stop words: about two sentences."""

LSA_DIMENSIONS = 128
"""Dimensions of the latent semantic analysis (LSA)."""

_BLOCK_ROWS = 1 << 15  # chunks projected or compared at a time; bounds memory
_PAIRS_AT_ONCE = 1 << 13  # pairs judged at a time; bounds memory
_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Vectors = NDArray[np.int16]


class EmbeddedJudge(Judge):
    """A weak first judge without a language model: do not compare retrievers by its labels, least of all neural ones.

    It reads no labels. The formula and its weights are the same for every corpus; they were fitted to six test
    collections (docs/explanation/judges.md), over which its probability is calibrated on average. A reply depends on
    the pair's texts and the corpus only.

    Args:
        space: terms of the tenant's chunks, as `TenantChunks.batches` yields them.
        threshold: minimum probability of a relevant pair.
    """

    def __init__(self, space: TermSpace, threshold: float = THRESHOLD) -> None:
        self._space = space
        self._threshold = threshold
        self._overlap = Overlap(space)

    @cached_property
    def judge_id(self) -> str:
        """`embedded-3:` and a hash of the formula's constants, the threshold and the corpus's terms."""
        digest = hashlib.sha256(f"{FORMULA} {self._threshold}\n{self._space.fingerprint}".encode())
        return f"embedded-{VERSION}:{digest.hexdigest()[:16]}"

    @cached_property
    def _bm25(self) -> Bm25:
        """Indexed on first use: the formula needs no search."""
        return Bm25(self._space)

    @cached_property
    def _meaning(self) -> SemanticSpace:
        """Fitted on first use: the formula needs no semantic analysis, and it takes longer than all the rest."""
        return SemanticSpace(self._space)

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Grade, raw reply, tokens and error are always null."""
        starts = range(0, pairs.num_rows, _PAIRS_AT_ONCE)
        scored = [self._probability(pairs.slice(start, _PAIRS_AT_ONCE)) for start in starts]
        probability = np.concatenate([np.empty(0), *scored])
        columns = {
            "relevant": pa.array(probability >= self._threshold),
            "probability": pa.array(probability.astype(np.float32)),
        }
        return replies_of(columns, pairs.num_rows)

    def _probability(self, pairs: pa.Table) -> _Floats:
        """Compute the probabilities of a block of pairs by the formula, shape (n_pairs,)."""
        return FORMULA.probability(np.stack(self._shared_information(self._count_terms(pairs)), axis=1))

    def features(self, pairs: pa.Table) -> Features:
        """Compute all features of pairs, given as a table with the columns of `PAIRS`."""
        block = self._count_terms(pairs)
        coverage, window = self._coverage(block)
        bm25, meaning, distance = self._retrieval_features(block)
        answered, information = self._shared_information(block)
        return Features(coverage, window, bm25, meaning, answered, information, distance)

    def _count_terms(self, pairs: pa.Table) -> _TermCounts:
        """Count the terms of each distinct query and text once."""
        unique_queries, query = distinct(pairs["query"])
        texts, chunk = distinct(view(pairs))
        queries, sequences = unique_queries.to_pylist(), self._space.sequences(texts.to_pylist())
        counts = sequences.counts(len(self._space.vocabulary))
        return _TermCounts(queries, self._space.count(queries), sequences, counts, query, chunk)

    def _coverage(self, block: _TermCounts) -> tuple[_Floats, _Floats]:
        """Compute coverage and window: shares of the query's terms, repeated terms repeatedly."""
        query_counts = block.query_counts
        weights = with_data(query_counts, self._overlap.idf[query_counts.indices] * query_counts.data)
        total = np.asarray(weights.sum(axis=1)).ravel()[block.query]
        coverage = sums(block.presence, weights, block.chunk, block.query)
        window = best_window(block.sequences, weights, block.chunk, block.query)
        return _share(coverage, total), _share(window, total)

    def _shared_information(self, block: _TermCounts) -> tuple[_Floats, _Floats]:
        """Compute answered and information: the inputs of the formula, each term once."""
        weights = with_data(block.query_counts, self._overlap.idf[block.query_counts.indices])
        total = np.asarray(weights.sum(axis=1)).ravel() + self._unknown_words(block.queries)
        answered = _share(sums(block.presence, weights, block.chunk, block.query), total[block.query])
        return answered, best_window(block.sequences, weights, block.chunk, block.query) / self._overlap.name

    def _unknown_words(self, queries: list[str]) -> _Floats:
        """Compute the weight of query words that the corpus does not contain, shape (n_queries,)."""
        vocabulary = self._space.vocabulary
        n_unknown = [len({term for term in self._space.tokenize(text) if term not in vocabulary}) for text in queries]
        return np.asarray(np.array(n_unknown) * self._overlap.rarest, dtype=np.float64)

    def _retrieval_features(self, block: _TermCounts) -> tuple[_Floats, _Floats, _Floats]:
        """Compute BM25, meaning and distance: features that depend on the query's results in the corpus."""
        query, chunk = block.query, block.chunk
        hits = self._bm25.search(block.queries, FEEDBACK_RESULTS)
        top = np.nan_to_num(hits.scores).max(axis=1, initial=0)
        score = sums(self._overlap.term_scores(block.counts), block.query_counts, chunk, query)
        moved = self._meaning.with_feedback(self._meaning.project(block.query_counts), hits)
        cosine = row_products(moved[query], self._meaning.project(block.counts)[chunk])
        mean, deviation = self._meaning.chance(moved)
        distance = np.divide(
            cosine - mean[query], deviation[query], out=np.zeros(len(query)), where=deviation[query] > 0
        )
        return _share(score, top[query]), _share(cosine, self._meaning.best_similarity(moved)[query]), distance


@dataclass(frozen=True)
class _TermCounts:
    """Distinct queries and texts of a block of pairs with their term counts.

    Attributes:
        queries: texts of the distinct queries.
        query_counts: their term counts, shape (n_queries, n_terms).
        sequences: terms of the distinct texts, in order.
        counts: term counts of the texts, shape (n_texts, n_terms).
        query: row of each pair's query, shape (n_pairs,).
        chunk: row of each pair's text, shape (n_pairs,).
    """

    queries: list[str]
    query_counts: sparse.csr_matrix
    sequences: TermSequences
    counts: sparse.csr_matrix
    query: _Ints
    chunk: _Ints

    @cached_property
    def presence(self) -> sparse.csr_matrix:
        """1 for each term of each text, in the shape of `counts`."""
        return with_data(self.counts, np.ones(self.counts.nnz))


@dataclass(frozen=True)
class Features:
    """Features of each pair, each of shape (n_pairs,).

    The first four are from 0 to 1 and distinguish a query's candidates: adaptive judging learns from them. The formula
    uses answered and information, which mean the same for every query.

    Attributes:
        coverage: idf-weighted share of the query's terms in the chunk; terms unknown to the corpus don't count.
        window: the same within the best 20 terms of the chunk.
        bm25: BM25 score ÷ the query's best score in the corpus.
        meaning: LSA cosine with the query and its first ten results ÷ the query's best cosine in the corpus.
        answered: like coverage, but unknown words count as the rarest known ones, and repeated words once.
        information: summed idf of the query's terms in the best 20 terms of the chunk ÷ log of the number of chunks. At
            1, one chunk of the corpus is expected to contain these terms by chance if terms were independent.
        distance: z-score of the LSA cosine among all chunks of the corpus.
    """

    coverage: _Floats
    window: _Floats
    bm25: _Floats
    meaning: _Floats
    answered: _Floats
    information: _Floats
    distance: _Floats

    @property
    def probability(self) -> _Floats:
        """Probability of relevance by the formula, shape (n_pairs,)."""
        return FORMULA.probability(np.stack([self.answered, self.information], axis=1))


class Overlap:
    """Weights of the corpus's terms, and their BM25 contributions.

    Attributes:
        idf: inverse document frequency of each term, shape (n_terms,).
        rarest: idf of a term that no chunk contains.
        name: information that identifies one chunk, log(n_chunks + 1), in the unit of idf.
    """

    def __init__(self, space: TermSpace) -> None:
        self.idf: _Floats = space.idf.astype(np.float64)
        self.rarest = float(inverse_frequency(np.zeros(1, np.int64), space.n_chunks)[0])
        self.name = float(np.log(max(space.n_chunks, 1) + 1))
        lengths = np.asarray(space.counts.sum(axis=1)).ravel()
        self._average = float(lengths.mean()) if lengths.any() else 1.0

    def term_scores(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        """Compute the BM25 contribution of each term to each chunk, in the shape of `counts`."""
        row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        length = np.bincount(row, counts.data, minlength=counts.shape[0])[row]
        weights = term_weights(counts.data, length / self._average, FIXED_SETTINGS)
        return with_data(counts, self.idf[counts.indices] * weights)


def with_data(matrix: sparse.csr_matrix, data: NDArray[np.floating]) -> sparse.csr_matrix:
    """Build a matrix with the same cells and other values."""
    from scipy import sparse

    return sparse.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def sums(chunks: sparse.csr_matrix, queries: sparse.csr_matrix, chunk: _Ints, query: _Ints) -> _Floats:
    """Compute the inner product of row `chunk[i]` of `chunks` with row `query[i]` of `queries`, shape (n_pairs,)."""
    products = (chunks @ queries.T).tocsr()
    return np.asarray(products[chunk, query], dtype=np.float64).ravel()


def best_window(sequences: TermSequences, weights: sparse.csr_matrix, chunk: _Ints, query: _Ints) -> _Floats:
    """Compute the maximum sum of weights of distinct query terms in `WINDOW_TERMS` terms of a chunk, shape (n_pairs,).

    Args:
        sequences: the chunks' terms in order.
        weights: term weights by query, shape (n_queries, n_terms), columns sorted.
        chunk: row of each pair's chunk.
        query: row of each pair's query.
    """
    pair, position, term, weight = _find_occurrences(sequences, weights, chunk, query)
    previous = _previous_occurrence(pair, term)
    total = np.zeros(len(pair))
    for shift in range(min(WINDOW_TERMS, len(pair))):
        start = np.arange(len(pair) - shift)
        end = start + shift
        inside = (pair[end] == pair[start]) & (position[end] - position[start] < WINDOW_TERMS)
        if not inside.any():
            break
        total[start] += np.where(inside & (previous[end] < start), weight[end], 0.0)
    best_scores = np.zeros(len(chunk))
    np.maximum.at(best_scores, pair, total)
    return best_scores


def _find_occurrences(
    sequences: TermSequences, weights: sparse.csr_matrix, chunk: _Ints, query: _Ints
) -> tuple[_Ints, _Ints, _Ints, _Floats]:
    """Find the occurrences of query terms in chunks: pair, position, term, weight; by pair, then position."""
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


def _previous_occurrence(pair: _Ints, term: _Ints) -> _Ints:
    """Find the index of the same pair's previous occurrence of the same term, −1 for the first."""
    order = np.lexsort((term, pair))  # stable: hits of one term stay in order
    is_repeated = (pair[order][1:] == pair[order][:-1]) & (term[order][1:] == term[order][:-1])
    previous = np.full(len(pair), -1, dtype=np.int64)
    previous[order[1:][is_repeated]] = order[:-1][is_repeated]
    return previous


class SemanticSpace:
    """An LSA of the corpus with the vectors of its chunks, in fixed point so that inner products are exact.

    Attributes:
        vectors: fixed-point vectors of the chunks, shape (n_chunks, dimensions).
    """

    def __init__(self, space: TermSpace) -> None:
        with threadpool_limits(1):  # the number of threads would change the last bits
            self._encoder = fit_lsa(space, LSA_DIMENSIONS)
        starts = range(0, space.n_chunks, _BLOCK_ROWS)
        blocks = [self.project(space.counts[start : start + _BLOCK_ROWS]) for start in starts]
        self.vectors: _Vectors = np.concatenate([np.empty((0, self._encoder.dimensions), np.int16), *blocks])
        self._sum = self.vectors.sum(axis=0, dtype=np.float64)  # whole numbers below 2⁵³, and so are the squares: exact
        float_blocks = (block.astype(np.float64) for block in blocks)
        self._squares = sum((block.T @ block for block in float_blocks), np.zeros((self._encoder.dimensions,) * 2))

    def project(self, counts: sparse.csr_matrix) -> _Vectors:
        """Compute the vectors of texts from their term counts, shape (n_texts, dimensions); zero without known
        terms.
        """
        return fixed_point(self._encoder.encode_counts(counts))

    def with_feedback(self, queries: _Vectors, hits: Hits) -> _Vectors:
        """Move queries halfway to the mean of their first results (Rocchio 1971), same shape."""
        is_result = hits.rows >= 0
        n_found = np.maximum(is_result.sum(axis=1, keepdims=True), 1)
        moved = queries * n_found
        for rank in range(hits.rows.shape[1]):
            result_vectors = self.vectors[hits.rows[:, rank]].astype(np.int64)
            moved = moved + result_vectors * is_result[:, rank : rank + 1]
        return fixed_point(unit_rows(moved))

    def chance(self, queries: _Vectors) -> tuple[_Floats, _Floats]:
        """Compute the mean and standard deviation of each query's inner products with all chunks, shape (n_queries,)
        each.
        """
        n = max(len(self.vectors), 1)
        mean = queries @ self._sum / n
        square = np.einsum("ij,jk,ik->i", queries.astype(np.float64), self._squares, queries.astype(np.float64)) / n
        return mean, np.sqrt(np.maximum(square - mean**2, 0))

    def best_similarity(self, queries: _Vectors) -> NDArray[np.int64]:
        """Compute the maximum inner product of each query with any chunk, at least 0, shape (n_queries,)."""
        query_vectors = queries.astype(np.float32)
        max_similarity = np.zeros(len(queries), dtype=np.float32)
        for start in range(0, len(self.vectors), _BLOCK_ROWS):
            chunk_vectors = self.vectors[start : start + _BLOCK_ROWS].astype(np.float32)
            max_similarity = np.maximum(max_similarity, (query_vectors @ chunk_vectors.T).max(axis=1))
        return max_similarity.astype(np.int64)


def row_products(left_vectors: _Vectors, right: _Vectors) -> NDArray[np.int64]:
    """Compute the inner product of row i of both matrices, shape (n_rows,)."""
    return np.asarray(np.einsum("ij,ij->i", left_vectors.astype(np.int64), right.astype(np.int64)))


def _share(part: NDArray[np.generic], total: NDArray[np.generic]) -> _Floats:
    """Divide `part` by `total`, clipped to 0 and 1; 0 if the total is 0."""
    denominator = np.asarray(total, dtype=np.float64)
    shares = np.divide(part, denominator, out=np.zeros(len(denominator)), where=denominator > 0)
    return np.asarray(np.clip(shares, 0.0, 1.0))
