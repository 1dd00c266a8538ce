"""Predict the relevance of unjudged pairs from the verdicts so far.

The first stage is a linear logistic regression over all queries. The second is a kernel logistic regression for each
query, which starts from the log-odds of the first (its offset).
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

L2_PENALTY = 3.0
"""L2 penalty of the linear regression's weights; a larger one needs more verdicts to move them."""

_MAX_NEWTON_STEPS = 12  # a fit that has not converged by then is used as it is
_MAX_LOG_ODDS = 20.0  # larger absolute values are clipped, so that exp does not overflow
_Floats = NDArray[np.float64]


def fit_linear(features: _Floats, labels: _Floats) -> _Floats:
    """Fit a ridge logistic regression by Newton's method and return its weights, shape (n_features,).

    Args:
        features: one row per judged pair, shape (n_rows, n_features). The first column must be the intercept (all 1):
            it is hardly penalized.
        labels: 1 (relevant) or 0, shape (n_rows,).
    """
    ridge = np.full(features.shape[1], L2_PENALTY)
    ridge[0] = 1e-3  # penalty of the intercept
    weights = np.zeros(features.shape[1])
    for _ in range(_MAX_NEWTON_STEPS):
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
    """Fit a kernel logistic regression with an offset and return its dual weights, shape (n_rows,).

    The log-odds of a new pair are its offset plus its kernel row times these weights. This is the posterior mode of a
    Gaussian process classifier (Rasmussen & Williams 2006, algorithm 3.1).

    Args:
        kernel: kernel matrix of the judged pairs, positive semidefinite, shape (n_rows, n_rows).
        labels: 1 (relevant) or 0, shape (n_rows,).
        offset: log-odds without this query's verdicts, shape (n_rows,).
    """
    from scipy.linalg import cho_factor, cho_solve

    latent = np.zeros(len(labels))
    dual = np.zeros(len(labels))
    for _ in range(_MAX_NEWTON_STEPS if len(labels) else 0):
        probability = sigmoid(latent + offset)
        slope = np.maximum(probability * (1 - probability), 1e-4)
        root = np.sqrt(slope)
        target = slope * latent + labels - probability
        inner = root[:, None] * kernel * root
        inner[np.diag_indices_from(inner)] += 1
        dual = target - root * cho_solve(cho_factor(inner, lower=True), root * (kernel @ target))
        previous_latent = latent
        latent = kernel @ dual
        if np.abs(latent - previous_latent).max() < 1e-2:
            break
    return dual


def sigmoid(log_odds: _Floats) -> _Floats:
    """Convert log-odds to probabilities; log-odds beyond ±20 are clipped."""
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -_MAX_LOG_ODDS, _MAX_LOG_ODDS))))


CONSTANT_VARIANCE, FEATURE_VARIANCE, TERM_VARIANCE = 1.0, 1.0, 15.0
"""Kernel variances: of a constant per query, of a linear function of the pair's kernel features (retrieval scores and
embedded-judge features), and of a linear function of its chunk's terms. A larger variance lets a query's own verdicts
move that part of its predictions further."""

MAX_KERNEL_CELLS = 1 << 27
"""Maximum total number of kernel matrix cells cached between fits (4 bytes each, so 512 MiB). A tenant with more has
its kernels recomputed in every round: less memory, more time, the same predictions."""


class ActiveLearner:
    """Two-stage estimator of the log-odds of relevance.

    A logistic regression over all queries uses the pair's features, and the term weights that queries with similar top
    results learned in the previous fit. Its log-odds are the offset of a kernel logistic regression per query, which
    adds nothing to a query without verdicts. The kernel is linear in terms: sharper kernels, and features such as the
    maximum similarity to a positive, starved queries whose first calls found no positive.

    Args:
        evidence: features of one tenant's pairs.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._shared_weights = np.zeros(evidence.n_pairs)
        self._kernels: dict[int, NDArray[np.float32]] = {}
        self._caches_kernels = int(np.square(np.diff(evidence.starts)).sum()) <= MAX_KERNEL_CELLS

    def fit(self, labels: _Floats) -> _Floats:
        """Fit both stages and predict the log-odds of every pair, shape (n_pairs,).

        The result is rounded to 6 decimals, so that float noise does not decide the order of equal pairs.

        Args:
            labels: 1 (relevant), 0, or NaN for pairs without a verdict to learn from, shape (n_pairs,).
        """
        with threadpool_limits(1):  # the number of threads would change the last bits
            judged = np.isfinite(labels)
            spread = self._shared_weights.std() or 1
            shared_weights = (self._shared_weights - self._shared_weights.mean()) / spread
            features = np.column_stack([np.ones(len(labels)), self._evidence.features, shared_weights])
            log_odds = features @ fit_linear(features[judged], labels[judged])
            log_odds += self._within_query_term(labels, judged, log_odds)
            return np.round(log_odds, 6)

    def _within_query_term(self, labels: _Floats, judged: NDArray[np.bool_], offset: _Floats) -> _Floats:
        """Predict what each query's own verdicts add to the log-odds, shape (n_pairs,).

        Also updates the term weights that the next fit shares between queries.
        """
        from scipy import sparse

        correction = np.zeros(len(labels))
        term_weights = []
        for first, end in pairwise(self._evidence.starts):
            judged_rows = np.flatnonzero(judged[first:end])
            terms = self._evidence.terms[first:end]
            kernel = self._kernels[first] if first in self._kernels else self._kernel(first, end)
            dual = fit_kernel(
                kernel[np.ix_(judged_rows, judged_rows)].astype(np.float64),
                labels[first + judged_rows],
                offset[first + judged_rows],
            )
            correction[first:end] = kernel[:, judged_rows] @ dual
            term_weights.append(sparse.csr_matrix(dual) @ terms[judged_rows])
        self._shared_weights = self._shared_term_weights(term_weights)
        return correction

    def _kernel(self, first: int, end: int) -> NDArray[np.float32]:
        """Compute the kernel matrix of the pairs `first` to `end` of one query, shape (n, n); cached if small
        enough.
        """
        kernel_features = self._evidence.features[first:end, self._evidence.kernel_columns]
        terms = self._evidence.terms[first:end]
        term_similarity = np.asarray((terms @ terms.T).todense())
        kernel = np.asarray(
            CONSTANT_VARIANCE
            + FEATURE_VARIANCE * (kernel_features @ kernel_features.T) / kernel_features.shape[1]
            + TERM_VARIANCE * term_similarity,
            np.float32,
        )
        if self._caches_kernels:
            self._kernels[first] = kernel
        return kernel

    def _shared_term_weights(self, weights: list[sparse.csr_matrix]) -> _Floats:
        """Sum, for each pair, the weights that similar queries learned for its terms; shape (n_pairs,)."""
        from scipy import sparse

        weights_by_query = sparse.vstack(weights, format="csr")
        spans = pairwise(self._evidence.starts)
        blocks = [
            self._evidence.terms[first:end] @ (self._evidence.similarity[query] @ weights_by_query).T
            for query, (first, end) in enumerate(spans)
        ]
        return np.concatenate([np.asarray(block.todense(), np.float64).ravel() for block in blocks])
