"""Vectors of short queries from the log itself: character n-grams, so that typos and inflections stay close."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

FIT_QUERIES = 50_000
BATCH = 20_000
DIMENSIONS = 64


class QueryLsa:
    """TF-IDF of character 3- to 5-grams within words, reduced by truncated SVD (latent semantic analysis).

    Fitted on at most about FIT_QUERIES queries, drawn evenly over the log; encodes any number, batch by batch.
    """

    def __init__(self, grams: TfidfVectorizer, svd: TruncatedSVD | None) -> None:
        self._grams = grams
        self._svd = svd
        self.dimensions = svd.n_components if svd else 1

    @classmethod
    def fit(cls, texts: Sequence[str], seed: int) -> "QueryLsa":
        """Fit on a log; one that has too few n-grams to reduce gets zero vectors of one dimension."""
        sample = texts[:: max(1, len(texts) // FIT_QUERIES)]
        grams = TfidfVectorizer(
            analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, max_features=100_000, dtype=np.float32
        )
        if not any(text.strip() for text in sample):
            return cls(grams, None)
        counts = grams.fit_transform(sample)
        dimensions = min(DIMENSIONS, min(counts.shape) - 1)
        if dimensions < 1:
            return cls(grams, None)
        with threadpool_limits(1), np.errstate(invalid="ignore"):  # equal queries have no variance to explain
            return cls(grams, TruncatedSVD(dimensions, random_state=seed).fit(counts))

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors (or zero), shape (len(texts), dimensions)."""
        if self._svd is None:
            return np.zeros((len(texts), 1), np.float32)
        batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        with threadpool_limits(1):
            reduced = [self._svd.transform(self._grams.transform(batch)) for batch in batches]
        return np.asarray(normalize(np.vstack(reduced)), np.float32)
