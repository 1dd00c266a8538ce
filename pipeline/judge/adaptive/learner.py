"""Predict the relevance of unjudged pairs from the verdicts so far.

Two stages: a linear logistic regression over all queries, then a kernel logistic regression per query with the first as
offset.
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
_STEPS = 12  # maximum Newton steps
_LIMIT = 20.0  # of log-odds, so that exp does not overflow
_Floats = NDArray[np.float64]


def fit_linear(features: _Floats, labels: _Floats) -> _Floats:
    """Weights of a ridge logistic regression, by Newton's method, shape (n_features,).

    Args:
        features: shape (n_rows, n_features); the first column, the intercept, is hardly penalized.
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
    """Dual weights of a kernel logistic regression with an offset, shape (n_rows,).

    Log-odds of a new pair: its offset plus its kernel row times these weights. This is the posterior mode of a Gaussian
    process classifier (Rasmussen & Williams 2006, algorithm 3.1).

    Args:
        kernel: of the judged pairs, positive semidefinite, shape (n_rows, n_rows).
        labels: 0 or 1, shape (n_rows,).
        offset: log-odds without this query's verdicts, shape (n_rows,).
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
"""Kernel variances: constant per query, linear in retrieval scores, linear in the chunks' terms."""

MAX_KERNEL_CELLS = 1 << 27
"""Maximum total cells of kernel matrices cached between fits, 4 bytes each; beyond it they are recomputed."""


class ActiveLearner:
    """Two-stage estimator of the log-odds of relevance.

    A logistic regression over all queries uses the pair's features, and term weights learned by queries with similar
    top results. Its log-odds are the offset of a kernel logistic regression per query, which adds nothing to a query
    without verdicts. The kernel is linear in terms: sharper kernels, and features such as the maximum similarity to a
    positive, starved queries whose first calls found no positive.

    Args:
        evidence: of one tenant.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._shared_weights = np.zeros(evidence.n_pairs)
        self._kernels: dict[int, NDArray[np.float32]] = {}
        self._caches_kernels = int(np.square(np.diff(evidence.starts)).sum()) <= MAX_KERNEL_CELLS

    def fit(self, labels: _Floats) -> _Floats:
        """Log-odds of every pair, shape (n_pairs,), rounded so that float noise does not decide.

        Args:
            labels: 1, 0, or NaN for pairs without a verdict to learn from, shape (n_pairs,).
        """
        with threadpool_limits(1):  # the number of threads would change the last bits
            judged = np.isfinite(labels)
            shared_weights = (self._shared_weights - self._shared_weights.mean()) / (self._shared_weights.std() or 1)
            features = np.column_stack([np.ones(len(labels)), self._evidence.features, shared_weights])
            log_odds = features @ fit_linear(features[judged], labels[judged])
            log_odds += self._within_query_term(labels, judged, log_odds)
            return np.round(log_odds, 6)

    def _within_query_term(self, labels: _Floats, judged: NDArray[np.bool_], offset: _Floats) -> _Floats:
        """Contribution of each query's own verdicts; also updates the term weights shared between queries at the next
        fit.
        """
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
        self._shared_weights = self._shared_term_weights(weights)
        return added

    def _kernel(self, first: int, end: int) -> NDArray[np.float32]:
        kernel_features = self._evidence.features[first:end, self._evidence.kernel_columns]
        terms = self._evidence.terms[first:end]
        alike = np.asarray((terms @ terms.T).todense())
        kernel = np.asarray(
            PRIOR + NEAR * (kernel_features @ kernel_features.T) / kernel_features.shape[1] + TERMS * alike, np.float32
        )
        if self._caches_kernels:
            self._kernels[first] = kernel
        return kernel

    def _shared_term_weights(self, weights: list[sparse.csr_matrix]) -> _Floats:
        """For each pair, the sum of its terms' weights learned by similar queries, shape (n_pairs,)."""
        from scipy import sparse

        term_weights = sparse.vstack(weights, format="csr")
        spans = pairwise(self._evidence.starts)
        shared = [
            self._evidence.terms[first:end] @ (self._evidence.similarity[number] @ term_weights).T
            for number, (first, end) in enumerate(spans)
        ]
        return np.concatenate([np.asarray(part.todense(), np.float64).ravel() for part in shared])
