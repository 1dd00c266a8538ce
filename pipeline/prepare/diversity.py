"""Cluster sampling: k-means over query vectors, and the queries nearest the centres stand for the rest.

The vectors come from the log itself: character n-grams, so that typos and inflections stay close.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from darklode.pipeline.prepare.filters import FilterResult, flat
from darklode.schemas.settings import CleanSettings

if TYPE_CHECKING:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

FIT_QUERIES = 50_000  # what n-grams and SVD are fitted on
BATCH = 20_000  # encoded at a time
DIMENSIONS = 64
FULL_BATCH_QUERIES = 20_000  # up to here plain k-means is fast enough; beyond, mini-batches


def pick_representatives(queries: pa.Table, settings: CleanSettings, seed: int) -> FilterResult:
    """Cluster each tenant's queries and keep `per_cluster` of each cluster (DevRev-Search, 3.1 (4))."""
    n = queries.num_rows
    clusters, representative = np.zeros(n, np.int32), np.arange(n)
    tenant = flat(queries["tenant"]).dictionary_encode()
    code = tenant.indices.to_numpy()
    for number in range(len(tenant.dictionary)):
        rows = np.flatnonzero(code == number)
        texts = queries["text"].take(pa.array(rows)).to_pylist()
        clusters[rows], local = _cluster(texts, settings, seed)
        representative[rows] = rows[local]
    queries = queries.append_column("cluster_id", pa.array(clusters))
    return FilterResult.by_representative(queries, representative, "cluster sampling")


def _cluster(texts: list[str], settings: CleanSettings, seed: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    k = n_clusters(len(texts), settings)
    vectors = QueryLsa.fit(texts, seed).encode_queries(texts)
    labels, distances = k_means(vectors, k, seed)
    everyone = np.arange(len(texts))
    return labels, _nearest(labels, distances, settings.per_cluster) if settings.per_cluster else everyone


def n_clusters(n: int, settings: CleanSettings) -> int:
    """How many clusters for n queries: 10·√n unless set, never more than n."""
    wanted = ceil(10 * sqrt(n)) if settings.clusters == "auto" else settings.clusters
    return max(1, min(n, wanted))


def k_means(vectors: NDArray[np.float32], k: int, seed: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Cluster unit vectors: labels, renumbered in order of first appearance, and each vector's distance to its centre.

    One thread: with several, sums are added in another order on every run and the clusters differ.
    """
    if k == len(vectors):
        return np.arange(k, dtype=np.int32), np.zeros(k, np.float32)
    from sklearn.cluster import KMeans, MiniBatchKMeans

    if len(vectors) <= FULL_BATCH_QUERIES:
        model = KMeans(k, n_init=1, max_iter=50, random_state=seed)
    else:
        model = MiniBatchKMeans(k, init="random", n_init=1, batch_size=8192, max_iter=10, random_state=seed)
    with threadpool_limits(1):
        raw = model.fit_predict(vectors)
    distances = np.linalg.norm(vectors - model.cluster_centers_[raw], axis=1).astype(np.float32)
    _, first, inverse = np.unique(raw, return_index=True, return_inverse=True)
    order = np.empty(len(first), np.int32)
    order[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return order[inverse], distances


def _nearest(labels: NDArray[np.int32], distances: NDArray[np.float32], keep: int) -> NDArray[np.int64]:
    """Each row's representative: itself if among the `keep` nearest its centre, else the nearest of its cluster."""
    order = np.lexsort((np.arange(len(labels)), distances.round(6), labels))
    sorted_labels = labels[order]
    starts = np.flatnonzero(np.r_[True, sorted_labels[1:] != sorted_labels[:-1]])
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    representative = np.empty(len(labels), np.int64)
    representative[order] = np.where(place < keep, order, order[np.repeat(starts, np.diff(np.r_[starts, len(order)]))])
    return representative


class QueryLsa:
    """TF-IDF of character 3- to 5-grams within words, reduced by truncated SVD (latent semantic analysis).

    Fitted on at most about FIT_QUERIES queries, drawn evenly over the log; encodes any number, batch by batch.
    """

    def __init__(self, grams: TfidfVectorizer, svd: TruncatedSVD | None) -> None:
        self._grams = grams
        self._svd = svd
        self.dimensions = svd.n_components if svd else 1

    @classmethod
    def fit(cls, texts: Sequence[str], seed: int) -> QueryLsa:
        """Fit on a log; one that has too few n-grams to reduce gets zero vectors of one dimension."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

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
        from sklearn.preprocessing import normalize

        batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        with threadpool_limits(1):
            reduced = [self._svd.transform(self._grams.transform(batch)) for batch in batches]
        return np.asarray(normalize(np.vstack(reduced)), np.float32)
