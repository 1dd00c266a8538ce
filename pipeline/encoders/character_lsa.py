"""Latent semantic analysis over the letters inside terms: words of one family meet, and misspelt ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.encoders.linear import TermVectors, log_counts, unit_sparse_rows
from pipeline.encoders.svd import truncated_svd
from pipeline.terms import TermSpace

_SAMPLE_CHUNKS = 12_000
_MAX_NGRAMS = 50_000
_SIZES = (3, 4, 5)


def ngrams(term: str) -> list[str]:
    """Runs of 3 to 5 characters of `^term$`."""
    marked = f"^{term}$"
    return [marked[i : i + size] for size in _SIZES for i in range(len(marked) - size + 1)]


def ngram_counts(terms: Iterable[str]) -> sparse.csr_matrix:
    """How often each n-gram occurs in each term: CSR, shape (n_terms, n_ngrams)."""
    known: dict[str, int] = {}
    columns = [[known.setdefault(gram, len(known)) for gram in ngrams(term)] for term in terms]
    rows = np.repeat(np.arange(len(columns)), [len(row) for row in columns])
    flat = np.array([column for row in columns for column in row], dtype=np.int64)
    ones = np.ones(len(flat), dtype=np.float32)
    return sparse.csr_matrix((ones, (rows, flat)), shape=(len(columns), max(1, len(known))))


def fit_character_map(terms: TermSpace, dimensions: int) -> NDArray[np.float32]:
    """One vector per frequent term, shape (n_terms, dimensions), leading directions first.

    LSA of chunks by idf-weighted character n-grams (McNamee and Mayfield 2004), fitted on at most 12,000
    chunks. A chunk's n-grams are the sum of its terms', so that the map is linear in the terms.
    """
    grams = ngram_counts(terms.frequent_terms)
    sample = terms.sample(_SAMPLE_CHUNKS)
    frequency = np.bincount((sample @ grams).indices, minlength=grams.shape[1])
    kept = np.sort(np.argsort(-frequency, kind="stable")[:_MAX_NGRAMS])
    idf = np.log((sample.shape[0] + 1) / (frequency[kept] + 0.5)).astype(np.float32)
    weighted = (grams[:, kept] @ sparse.diags(idf)).tocsr()
    _, _, right = truncated_svd(unit_sparse_rows((log_counts(sample) @ weighted).tocsr()), dimensions)
    return np.asarray(weighted @ right.T)


def character_lsa(terms: TermSpace, character_map: NDArray[np.float32], dimensions: int) -> TermVectors:
    """The encoder of the first `dimensions` directions of a map from `fit_character_map`."""
    return TermVectors(f"character-lsa-{dimensions}-1", terms, character_map[:, :dimensions])
