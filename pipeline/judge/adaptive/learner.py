"""What the verdicts so far say about the pairs that have none.

Two logistic regressions: a linear one over all queries, and one in a kernel for each query, on top of the first.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from darklode.pipeline.judge.adaptive.pool_features import Evidence

if TYPE_CHECKING:
    from scipy import sparse

RIDGE = 3.0
_STEPS = 12  # of Newton, at most
_LIMIT = 20.0  # of log-odds, lest exp overflow
_Floats = NDArray[np.float64]


def fit_linear(features: _Floats, labels: _Floats) -> _Floats:
    """Weights of a ridge logistic regression, by Newton's method, shape (n_features,).

    Args:
        features: shape (n_rows, n_features); the first column, of ones, is hardly shrunk.
        labels: 0 or 1, shape (n_rows,).
    """
    ridge = np.full(features.shape[1], RIDGE)
    ridge[0] = 1e-3
    weights = np.zeros(features.shape[1])
    for _ in range(_STEPS):
        probability = sigmoid(features @ weights)
        slope = np.maximum(probability * (1 - probability), 1e-6)
        gradient = features.T @ (labels - probability) - ridge * weights
        curvature = (features * slope[:, None]).T @ features + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-4:
            break
    return weights


def fit_kernel(kernel: _Floats, labels: _Floats, offset: _Floats) -> _Floats:
    """Dual weights of a kernel logistic regression around `offset`, shape (n_rows,).

    A row of the kernel with new pairs times these weights is what is added to their offset. This is the mode of a
    Gaussian process classifier (Rasmussen & Williams 2006, algorithm 3.1).

    Args:
        kernel: of the judged pairs, positive semidefinite, shape (n_rows, n_rows).
        labels: 0 or 1, shape (n_rows,).
        offset: log-odds before this query's own verdicts are seen, shape (n_rows,).
    """
    from scipy.linalg import cho_factor, cho_solve

    latent, dual = np.zeros(len(labels)), np.zeros(len(labels))
    for _ in range(_STEPS if len(labels) else 0):
        probability = sigmoid(latent + offset)
        slope = np.maximum(probability * (1 - probability), 1e-4)
        root = np.sqrt(slope)
        target = slope * latent + labels - probability
        inner = root[:, None] * kernel * root
        inner[np.diag_indices_from(inner)] += 1
        dual = target - root * cho_solve(cho_factor(inner, lower=True), root * (kernel @ target))
        before, latent = latent, kernel @ dual
        if np.abs(latent - before).max() < 1e-2:
            break
    return dual


def sigmoid(log_odds: _Floats) -> _Floats:
    """Probability of log-odds."""
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -_LIMIT, _LIMIT))))


PRIOR, NEAR, TERMS = 1.0, 1.0, 15.0
"""Variances of a query's own log-odds: for all its pairs together, by scores, and by the chunks' terms."""

KEPT = 1 << 27
"""Most cells of the queries' kernels that are kept between fits, 4 bytes each; larger ones are computed anew."""


class ActiveLearner:
    """Log-odds of being relevant, in two steps.

    A logistic regression over all queries weighs the pair's features, and what queries with alike first finds have
    learnt of the chunk's terms. What it says is the offset of a kernel logistic regression for each query, which
    compares the pairs with the query's own verdicts: nothing judged, nothing added. The kernel is linear in the terms
    of the chunks; sharper ones, and features such as the greatest similarity to a positive, starved the queries whose
    first calls found nothing.

    Args:
        evidence: of one tenant.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._lent = np.zeros(evidence.n_pairs)
        self._kernels: dict[int, NDArray[np.float32]] = {}
        self._keeps = int(np.square(np.diff(evidence.starts)).sum()) <= KEPT

    def fit(self, labels: _Floats) -> _Floats:
        """Log-odds of every pair, rounded so that no unit in the last place decides, shape (n_pairs,).

        Args:
            labels: 1, 0, or not a number where there is no verdict to learn from, shape (n_pairs,).
        """
        with threadpool_limits(1):  # the number of threads would change the last bits
            judged = np.isfinite(labels)
            lent = (self._lent - self._lent.mean()) / (self._lent.std() or 1)
            features = np.column_stack([np.ones(len(labels)), self._evidence.features, lent])
            log_odds = features @ fit_linear(features[judged], labels[judged])
            log_odds += self._within_query_term(labels, judged, log_odds)
            return np.round(log_odds, 6)

    def _within_query_term(self, labels: _Floats, judged: NDArray[np.bool_], offset: _Floats) -> _Floats:
        """What each query's own verdicts add; keeps what they say of terms, to be lent at the next fit."""
        from scipy import sparse

        added, weights = np.zeros(len(labels)), []
        for first, end in pairwise(self._evidence.starts):
            judged_rows = np.flatnonzero(judged[first:end])
            terms = self._evidence.terms[first:end]
            kernel = self._kernels[first] if first in self._kernels else self._kernel(first, end)
            dual = fit_kernel(
                kernel[np.ix_(judged_rows, judged_rows)].astype(np.float64),
                labels[first + judged_rows],
                offset[first + judged_rows],
            )
            added[first:end] = kernel[:, judged_rows] @ dual
            weights.append(sparse.csr_matrix(dual) @ terms[judged_rows])
        self._lent = self._shared_term_weights(weights)
        return added

    def _kernel(self, first: int, end: int) -> NDArray[np.float32]:
        kernel_features = self._evidence.features[first:end, self._evidence.kernel_columns]
        terms = self._evidence.terms[first:end]
        alike = np.asarray((terms @ terms.T).todense())
        kernel = np.asarray(
            PRIOR + NEAR * (kernel_features @ kernel_features.T) / kernel_features.shape[1] + TERMS * alike, np.float32
        )
        if self._keeps:
            self._kernels[first] = kernel
        return kernel

    def _shared_term_weights(self, weights: list[sparse.csr_matrix]) -> _Floats:
        """For each pair, the weights of its chunk's terms in the queries alike."""
        from scipy import sparse

        learnt = sparse.vstack(weights, format="csr")
        spans = pairwise(self._evidence.starts)
        borrowed = [
            self._evidence.terms[first:end] @ (self._evidence.alike[number] @ learnt).T
            for number, (first, end) in enumerate(spans)
        ]
        return np.concatenate([np.asarray(part.todense(), np.float64).ravel() for part in borrowed])
