"""Cluster sampling: group similar queries, keep some of each cluster, and name the kept query for each dropped one.

Clusters come from k-means over character n-gram vectors fitted on the log, in which typos and inflections are close.
The stage `split` puts whole clusters into one split, so that similar queries do not leak from train to test.
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

MIN_FIT_QUERIES = 50_000  # sample on which n-grams and SVD are fitted
ENCODE_BATCH = 20_000  # queries encoded at a time, to bound memory
DIMENSIONS = 64  # length of the vectors after the SVD
MAX_FULL_BATCH_QUERIES = 20_000  # up to this number plain k-means is fast enough; above it, mini-batches are used


def pick_representatives(queries: pa.Table, settings: CleanSettings, seed: int, tables: Tables) -> FilterResult:
    """Cluster each tenant's queries and keep some of each cluster (DevRev-Search, 3.1 (4)).

    A dropped query is represented by a kept query with the same wording (`same_words`), or by none. By default
    (`max_per_cluster: auto`) one query per wording is kept, so no distinct question is lost.

    Args:
        queries: queries of all tenants.
        settings: number of clusters, and maximum number of kept queries per cluster.
        seed: random seed of the clustering.
        tables: holds `documents`, which decide whether a word is a typo.
    """
    n = queries.num_rows
    clusters = np.zeros(n, np.int32)
    distance = np.zeros(n, np.float32)
    kept_for = same_words(queries, tables)
    wording_group = kept_for.copy()
    for rows in rows_by(queries["tenant"]):
        texts = queries["text"].take(pa.array(rows)).to_pylist()
        vectors = QueryLsa.fit(texts, seed).encode_queries(texts)
        clusters[rows], distances = k_means(vectors, n_clusters(len(rows), settings), seed)
        if settings.max_per_cluster != "auto":
            kept_for[rows] = rows[
                _choose_representatives(clusters[rows], distances, settings.max_per_cluster or len(rows))
            ]
        representative_row = np.searchsorted(rows, kept_for[rows])
        distance[rows] = 1 - np.einsum("ij,ij->i", vectors, vectors[representative_row])
    queries = queries.append_column("cluster_id", pa.array(clusters))
    dropped = kept_for != np.arange(n)
    facts = {"mean_distance": float(distance[dropped].mean())} if dropped.any() else {}
    return FilterResult.by_representative(
        queries, kept_for, "cluster sampling", _kept_of_wording(wording_group, dropped), facts
    )


def _kept_of_wording(wording_group: NDArray[np.int64], dropped: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each query, the row of the first kept query with the same wording; -1 if none was kept."""
    first_kept = np.full(len(wording_group), -1)
    kept_rows = np.flatnonzero(~dropped)[::-1]  # descending, so that the first row is assigned last and stays
    first_kept[wording_group[kept_rows]] = kept_rows
    return first_kept[wording_group]


def n_clusters(n: int, settings: CleanSettings) -> int:
    """Number of clusters for n queries: 10·√n unless set, at most n."""
    n_wanted = ceil(10 * sqrt(n)) if settings.n_clusters == "auto" else settings.n_clusters
    return max(1, min(n, n_wanted))


def k_means(vectors: NDArray[np.float32], k: int, seed: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Cluster unit vectors; returns labels, numbered by first appearance, and each vector's distance to its centroid.

    Runs on one thread: with several, floating-point sums differ from run to run, and so do the clusters.
    """
    if k == len(vectors):
        return np.arange(k, dtype=np.int32), np.zeros(k, np.float32)
    from sklearn.cluster import KMeans, MiniBatchKMeans

    if len(vectors) <= MAX_FULL_BATCH_QUERIES:
        model = KMeans(k, n_init=1, max_iter=50, random_state=seed)
    else:
        model = MiniBatchKMeans(k, init="random", n_init=1, batch_size=8192, max_iter=10, random_state=seed)
    with threadpool_limits(1):
        labels = model.fit_predict(vectors)
    distances = np.linalg.norm(vectors - model.cluster_centers_[labels], axis=1).astype(np.float32)
    _, first_rows, label_index = np.unique(labels, return_index=True, return_inverse=True)
    new_labels = np.empty(len(first_rows), np.int32)
    new_labels[np.argsort(first_rows)] = np.arange(len(first_rows), dtype=np.int32)
    return new_labels[label_index], distances


def _choose_representatives(labels: NDArray[np.int32], distances: NDArray[np.float32], keep: int) -> NDArray[np.int64]:
    """Row kept for each query: itself if among the `keep` nearest to the centroid, else the nearest of its cluster."""
    # Rounded, so that floating-point noise does not decide between equal distances; the row number breaks ties.
    order = np.lexsort((np.arange(len(labels)), distances.round(6), labels))
    sorted_labels = labels[order]
    starts = np.flatnonzero(np.r_[True, sorted_labels[1:] != sorted_labels[:-1]])
    cluster_start = np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    rank_in_cluster = np.arange(len(order)) - cluster_start
    representative = np.empty(len(labels), np.int64)
    representative[order] = np.where(rank_in_cluster < keep, order, order[cluster_start])
    return representative


class QueryLsa:
    """TF-IDF of character 3- to 5-grams within words, reduced by truncated SVD (latent semantic analysis).

    Fitted on all queries of a small log, and on every n-th query of a large one: fewer than 2 · MIN_FIT_QUERIES.
    """

    def __init__(self, grams: TfidfVectorizer, svd: TruncatedSVD | None) -> None:
        self._grams = grams
        self._svd = svd
        self.dimensions = svd.n_components if svd else 1

    @classmethod
    def fit(cls, texts: Sequence[str], seed: int) -> QueryLsa:
        """Fit on a query log; if it has too few n-grams for an SVD, all vectors are zero and have one dimension."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        sample = texts[:: max(1, len(texts) // MIN_FIT_QUERIES)]
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

        batches = [texts[start : start + ENCODE_BATCH] for start in range(0, len(texts), ENCODE_BATCH)]
        with threadpool_limits(1):
            reduced = [self._svd.transform(self._grams.transform(batch)) for batch in batches]
        return np.asarray(normalize(np.vstack(reduced)), np.float32)
