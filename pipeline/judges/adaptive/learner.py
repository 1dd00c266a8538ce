"""What the verdicts so far say about the pairs that have none."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from pipeline.judges.adaptive.evidence import Evidence
from pipeline.judges.adaptive.regression import fit_kernel, fit_linear

PRIOR, NEAR, TERMS = 1.0, 1.0, 15.0
"""Variances of a query's own log-odds: for all its pairs together, by scores, and by the chunks' terms."""

KEPT = 1 << 27
"""Most cells of the queries' kernels that are kept between fits, 4 bytes each; larger ones are computed anew."""

_Floats = NDArray[np.float64]


class Learner:
    """Log-odds of being relevant, in two steps.

    A logistic regression over all queries weighs the pair's features, and what queries with alike first finds have
    learnt of the chunk's terms. What it says is the offset of a kernel logistic regression for each query, which
    compares the pairs with the query's own verdicts: nothing judged, nothing added. The kernel is linear in the
    terms of the chunks; sharper ones, and features such as the greatest similarity to a positive, starved the queries
    whose first calls found nothing.

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
            log_odds += self._own(labels, judged, log_odds)
            return np.round(log_odds, 6)

    def _own(self, labels: _Floats, judged: NDArray[np.bool_], offset: _Floats) -> _Floats:
        """What each query's own verdicts add; keeps what they say of terms, to be lent at the next fit."""
        added, weights = np.zeros(len(labels)), []
        for first, end in pairwise(self._evidence.starts):
            known = np.flatnonzero(judged[first:end])
            terms = self._evidence.terms[first:end]
            kernel = self._kernels[first] if first in self._kernels else self._kernel(first, end)
            dual = fit_kernel(
                kernel[np.ix_(known, known)].astype(np.float64), labels[first + known], offset[first + known]
            )
            added[first:end] = kernel[:, known] @ dual
            weights.append(sparse.csr_matrix(dual) @ terms[known])
        self._lent = self._lend(weights)
        return added

    def _kernel(self, first: int, end: int) -> NDArray[np.float32]:
        near = self._evidence.features[first:end, self._evidence.near]
        terms = self._evidence.terms[first:end]
        alike = np.asarray((terms @ terms.T).todense())
        kernel = np.asarray(PRIOR + NEAR * (near @ near.T) / near.shape[1] + TERMS * alike, np.float32)
        if self._keeps:
            self._kernels[first] = kernel
        return kernel

    def _lend(self, weights: list[sparse.csr_matrix]) -> _Floats:
        """For each pair, the weights of its chunk's terms in the queries alike."""
        learnt = sparse.vstack(weights, format="csr")
        spans = pairwise(self._evidence.starts)
        borrowed = [
            self._evidence.terms[first:end] @ (self._evidence.alike[number] @ learnt).T
            for number, (first, end) in enumerate(spans)
        ]
        return np.concatenate([np.asarray(part.todense(), np.float64).ravel() for part in borrowed])
