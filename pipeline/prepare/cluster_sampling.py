"""Cluster sampling: which of the queries that say alike are kept, and which of those stand for others.

Clusters come from k-means over vectors that are made of the log itself: character n-grams, so that typos and
inflections stay close. They keep what is alike on one side of a split.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.prepare.filters import FilterResult, rows_by
from darklode.pipeline.prepare.wording import same_words
from darklode.schemas.settings import CleanSettings

if TYPE_CHECKING:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

FIT_QUERIES = 50_000  # what n-grams and SVD are fitted on
BATCH = 20_000  # encoded at a time
DIMENSIONS = 64
FULL_BATCH_QUERIES = 20_000  # up to here plain k-means is fast enough; beyond, mini-batches


def pick_representatives(queries: pa.Table, settings: CleanSettings, seed: int, tables: Tables) -> FilterResult:
    """Cluster each tenant's queries, and keep some of each cluster (DevRev-Search, 3.1 (4)).

    What is dropped is represented by a kept query that asks for the same in the same words (`same_words`), or by none.
    By default one of each such group is kept, so that nothing that somebody needs goes.

    Args:
        queries: of all tenants.
        settings: how many clusters, and how many queries of each are kept.
        seed: of the clustering.
        tables: holds `documents`.
    """
    n = queries.num_rows
    clusters, kept_for, distance = np.zeros(n, np.int32), same_words(queries, tables), np.zeros(n, np.float32)
    alike = kept_for.copy()
    for rows in rows_by(queries["tenant"]):
        texts = queries["text"].take(pa.array(rows)).to_pylist()
        vectors = QueryLsa.fit(texts, seed).encode_queries(texts)
        clusters[rows], distances = k_means(vectors, n_clusters(len(rows), settings), seed)
        if settings.max_per_cluster != "auto":
            kept_for[rows] = rows[_nearest(clusters[rows], distances, settings.max_per_cluster or len(rows))]
        representative_row = np.searchsorted(rows, kept_for[rows])
        distance[rows] = 1 - np.einsum("ij,ij->i", vectors, vectors[representative_row])
    queries = queries.append_column("cluster_id", pa.array(clusters))
    dropped = kept_for != np.arange(n)
    facts = {"mean_distance": float(distance[dropped].mean())} if dropped.any() else {}
    return FilterResult.by_representative(queries, kept_for, "cluster sampling", _peers(alike, dropped), facts)


def _peers(alike: NDArray[np.int64], dropped: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each query the first kept one of its group, -1 where none is."""
    first = np.full(len(alike), -1)
    retained_rows = np.flatnonzero(~dropped)[::-1]
    first[alike[retained_rows]] = retained_rows
    return first[alike]


def n_clusters(n: int, settings: CleanSettings) -> int:
    """How many clusters for n queries: 10·√n unless set, never more than n."""
    n_wanted = ceil(10 * sqrt(n)) if settings.n_clusters == "auto" else settings.n_clusters
    return max(1, min(n, n_wanted))


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
    rank_in_cluster = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    representative = np.empty(len(labels), np.int64)
    representative[order] = np.where(
        rank_in_cluster < keep, order, order[np.repeat(starts, np.diff(np.r_[starts, len(order)]))]
    )
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
