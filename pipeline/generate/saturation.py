"""What more generated queries would add: clusters of similar queries so far, and estimates of those not seen yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from darklode.pipeline.base.types import Doubles, Ints

BATCH = 256
"""Queries between two estimates; also the texts per unit of work."""

DEFAULT_SIMILARITY = 0.5
"""Minimum cosine of similar queries where there are no real queries of two clusters to fit it to."""

MIN_BATCHES = 2
"""Batches before which no estimate stops the generation."""

MAX_REAL_QUERIES = 5000
"""Real queries that the minimum cosine is fitted to."""

_N_FEATURES = 1 << 18


def ngram_vectors(texts: Sequence[str]) -> Any:
    """Character n-grams within words, hashed, as sparse rows of length 1, shape (n_texts, 2**18).

    Hashing needs no fit, so that a query's vector does not depend on the queries that come later.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    model = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), n_features=_N_FEATURES, alternate_sign=False)
    return model.transform(texts).tocsr()


def usual_similarity(texts: Sequence[str], clusters: Sequence[str]) -> float:
    """Median cosine of real queries with the nearest query of another cluster; the default with less than two clusters.

    Args:
        texts: real queries; only the first `MAX_REAL_QUERIES` count.
        clusters: cluster of each.
    """
    texts, clusters = texts[:MAX_REAL_QUERIES], clusters[:MAX_REAL_QUERIES]
    codes = np.unique(np.array(clusters, dtype=str), return_inverse=True)[1]
    if len(np.unique(codes)) < 2:
        return DEFAULT_SIMILARITY
    vectors, nearest = ngram_vectors(texts), np.empty(len(texts))
    for start in range(0, len(texts), BATCH):
        rows = slice(start, start + BATCH)
        cosines = (vectors[rows] @ vectors.T).toarray()
        cosines[codes[rows, None] == codes[None, :]] = 0.0
        nearest[rows] = cosines.max(axis=1)
    return float(np.median(nearest))


class QueryClusters:
    """Clusters of similar queries in order of arrival (leader clustering; Hartigan 1975).

    A query joins the cluster whose first query is most similar to it, if the cosine is at least `similarity`; otherwise
    it starts a new one. Earlier queries never change their cluster.

    Args:
        similarity: minimum cosine of character n-gram vectors.
    """

    def __init__(self, similarity: float) -> None:
        self._similarity = similarity
        self._leaders: list[Any] = []
        self.sizes: list[int] = []
        """Queries of each cluster."""

    def add(self, texts: Sequence[str]) -> int:
        """Assign queries; returns how many clusters they started."""
        from scipy import sparse

        before = len(self.sizes)
        if not texts:
            return 0
        vectors = ngram_vectors(texts)
        known = (vectors @ sparse.vstack(self._leaders).T).toarray() if before else np.zeros((len(texts), 0))
        within, leaders = (vectors @ vectors.T).toarray(), list[int]()
        for row in range(len(texts)):
            cosines = np.concatenate([known[row], within[row, leaders]])
            best = int(cosines.argmax()) if len(cosines) else -1
            if best >= 0 and cosines[best] >= self._similarity:
                self.sizes[best] += 1
            else:
                leaders.append(row)
                self.sizes.append(1)
        self._leaders += [vectors[row] for row in leaders]
        return len(leaders)


@dataclass(frozen=True)
class Saturation:
    """How many clusters queries cover, and what more of them would add.

    Attributes:
        sizes: queries of each cluster, shape (n_clusters,).
    """

    sizes: Ints

    @property
    def n(self) -> int:
        """Number of queries."""
        return int(self.sizes.sum())

    @property
    def new_share(self) -> float:
        """Expected share of the next queries in a new cluster: that of singletons (Good 1953); 1 without queries."""
        return float((self.sizes == 1).sum() / self.n) if self.n else 1.0

    @property
    def unseen(self) -> float:
        """Lower bound of the number of clusters not seen yet, bias-corrected (Chao 1984, 1987)."""
        once, twice = int((self.sizes == 1).sum()), int((self.sizes == 2).sum())
        return (self.n - 1) / max(self.n, 1) * once * (once - 1) / (2 * (twice + 1)) if once > 1 else 0.0

    @property
    def evenness(self) -> float | None:
        """Entropy of the distribution over clusters divided by its maximum, 0 to 1; None with fewer than two."""
        if len(self.sizes) < 2:
            return None
        share: Doubles = self.sizes / self.n
        return float(-(share * np.log(share)).sum() / np.log(len(share)))

    def expected_new(self, n_more: int) -> float:
        """Expected number of new clusters among `n_more` queries (Chao and others 2014, equation 9)."""
        once = int((self.sizes == 1).sum())
        if not once:
            return 0.0
        unseen = self.unseen
        if unseen == 0:
            return min(float(n_more), 1.0) * self.new_share
        return float(unseen * (1 - (1 - once / (self.n * unseen + once)) ** n_more))


class EarlyStop:
    """Decides when more queries are not worth their price: the expected share of new ones is below a minimum.

    Args:
        similarity: minimum cosine of similar queries.
        min_new_share: minimum expected share of the next queries that are unlike all earlier ones.
    """

    def __init__(self, similarity: float, min_new_share: float) -> None:
        self._clusters, self._min_new_share, self._n_batches = QueryClusters(similarity), min_new_share, 0

    def add(self, texts: Sequence[str]) -> None:
        """Add a batch of queries."""
        self._clusters.add(texts)
        self._n_batches += 1

    @property
    def is_reached(self) -> bool:
        """Whether to stop; never before `MIN_BATCHES` batches."""
        state = Saturation(np.array(self._clusters.sizes, np.int64))
        return self._n_batches >= MIN_BATCHES and state.new_share < self._min_new_share


def saturation_curve(texts: Sequence[str], similarity: float) -> list[dict[str, float | int | None]]:
    """Rows of `generation_saturation` without the tenant: one after each batch of queries, in their order.

    Args:
        texts: queries in random order.
        similarity: minimum cosine of similar queries.
    """
    clusters, rows = QueryClusters(similarity), list[dict[str, float | int | None]]()
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        started = clusters.add(batch)
        state = Saturation(np.array(clusters.sizes, np.int64))
        rows.append(
            {
                "queries": state.n,
                "clusters": len(clusters.sizes),
                "unseen": state.unseen,
                "new_share": state.new_share,
                "repeated_share": 1 - started / len(batch),
                "doubling": state.expected_new(state.n),
                "evenness": state.evenness,
            }
        )
    return rows
