"""Word vectors from positive pointwise mutual information, and two ways to sum them into a chunk's vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.retrieve.encoders.lsa import TermVectors, log_counts, truncated_svd, unit_rows

if TYPE_CHECKING:
    from scipy import sparse

_SAMPLE_CHUNKS = 20_000  # chunks in which co-occurrences are counted at most: bounds time and memory
_COMPONENT_CHUNKS = 4_000  # a single direction needs few
_CONTEXT_SMOOTHING = 0.75
_SIF_PARAMETER = 1e-3  # a of Arora et al.; smaller values weigh frequent words less


def cooccurrence(counts: sparse.csr_matrix) -> sparse.coo_matrix:
    """Co-occurrence counts of terms in chunks, each chunk weighted by 1 / its number of terms."""
    from scipy import sparse

    present = (counts > 0).astype(np.float32)
    sizes = np.maximum(np.asarray(present.sum(axis=1)).ravel(), 1)
    pairs = (present.T @ (sparse.diags((1 / sizes).astype(np.float32)) @ present)).tocoo()
    different = pairs.row != pairs.col
    positions = (pairs.row[different], pairs.col[different])
    return sparse.coo_matrix((pairs.data[different], positions), pairs.shape)


def positive_pmi(pairs: sparse.coo_matrix) -> sparse.csr_matrix:
    """max(0, PMI) of each pair, contexts smoothed with the power 0.75 (Levy, Goldberg and Dagan 2015)."""
    from scipy import sparse

    totals = np.bincount(pairs.row, pairs.data, minlength=pairs.shape[0])
    smoothed = totals**_CONTEXT_SMOOTHING
    smoothed /= max(smoothed.sum(), 1e-12)
    pmi = np.log(pairs.data / (totals[pairs.row] * smoothed[pairs.col])).astype(np.float32)
    is_positive = pmi > 0
    return sparse.csr_matrix((pmi[is_positive], (pairs.row[is_positive], pairs.col[is_positive])), shape=pairs.shape)


def fit_word_vectors(terms: TermSpace, dimensions: int) -> NDArray[np.float32]:
    """One vector per frequent term, shape (n_terms, at most dimensions).

    U·√S of the PPMI matrix (Levy and Goldberg 2014), counted over at most 20,000 chunks.
    """
    word_vectors, values, _ = truncated_svd(positive_pmi(cooccurrence(terms.sample(_SAMPLE_CHUNKS))), dimensions)
    return word_vectors * np.sqrt(values)


def fit_ppmi_sif(terms: TermSpace, words: NDArray[np.float32]) -> TermVectors:
    """Smooth inverse frequency (Arora, Liang and Ma 2017): common words weigh less, and the common component is
    removed.
    """
    sample = terms.sample(_COMPONENT_CHUNKS)
    frequency = terms.document_frequency[terms.frequent] / max(1, int(terms.document_frequency.sum()))
    weighted = words * (_SIF_PARAMETER / (_SIF_PARAMETER + frequency)).astype(np.float32)[:, None]
    _, _, right = np.linalg.svd(unit_rows(log_counts(sample) @ weighted), full_matrices=False)
    common = right[:1]
    return TermVectors(f"ppmi-sif-{words.shape[1]}-1", terms, weighted - (weighted @ common.T) @ common)


def fit_ppmi_idf(terms: TermSpace, words: NDArray[np.float32]) -> TermVectors:
    """Sum of normalized word vectors weighted by idf: rare words count fully."""
    weighted = unit_rows(words) * terms.idf[terms.frequent][:, None]
    return TermVectors(f"ppmi-idf-{words.shape[1]}-1", terms, weighted)
