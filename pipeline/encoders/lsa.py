"""Latent semantic analysis over log-entropy weighted terms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.encoders.linear import TermVectors, log_counts, unit_sparse_rows
from pipeline.encoders.svd import truncated_svd
from pipeline.terms import TermSpace

_SAMPLE_CHUNKS = 50_000


def entropy_weights(counts: sparse.csr_matrix) -> NDArray[np.float32]:
    """Weight of each term, shape (n_terms,): 1 for a term of one chunk, 0 for one spread evenly over all.

    That is 1 - entropy of the term over the chunks / log(n_chunks).
    """
    by_term = counts.tocoo()
    totals = np.bincount(by_term.col, by_term.data, minlength=counts.shape[1])
    share = by_term.data / totals[by_term.col]
    entropy = -np.bincount(by_term.col, share * np.log(share), minlength=counts.shape[1])
    weights: NDArray[np.float32] = (1 - entropy / np.log(max(2, counts.shape[0]))).astype(np.float32)
    return weights


def fit_lsa(terms: TermSpace, dimensions: int) -> TermVectors:
    """LSA (Deerwester et al. 1990), log-entropy weights (Dumais 1991), fitted on at most 50,000 chunks."""
    sample = terms.sample(_SAMPLE_CHUNKS)
    weights = np.maximum(entropy_weights(sample), 0) + np.float32(1e-3)  # a term in every chunk keeps a trace
    _, _, right = truncated_svd(unit_sparse_rows(log_counts(sample, weights)), dimensions)
    return TermVectors(f"lsa-{dimensions}-1", terms, weights[:, None] * right.T)
