"""Synthetic tenants made of a labelled collection's vectors; used by `tenants`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.train.fit.pooled_head import TrainingPairs
from darklode.pipeline.train.fit.whitening import whiten

TOPICS = 10
"""Topics per collection: k-means clusters of its queries. A tenant belongs to one, and searches its texts."""

SHARES = (0.3, 0.4, 0.3)
"""Share of a topic's query clusters that tenants train on, are tested on, and that measure the truth."""

MEAN_TEST_CLUSTERS = 3
"""Mean number of a tenant's test clusters, as far as the topic has them."""

OPTIMAL_RANKS = 1 / np.arange(1, 21)
OPTIMAL_RANKS /= OPTIMAL_RANKS.sum()
"""Where the base is optimal: probability that a query's relevant text is its first, second, …, by the base. Its nDCG@10
is then .52, about that with people's labels.
"""

MAX_TEXTS = 1000
"""Texts per topic besides the relevant ones, drawn at random."""
MAX_POSITIVES = 4
"""Positives of a query that are trained on."""

N_NEAREST, N_NEGATIVES, MARGIN, DEPTH = 100, 8, 0.05, 10
TEMPERATURE = 0.03


@dataclass(frozen=True)
class Topic:
    """Queries and texts of a topic.

    Attributes:
        queries: base vectors, shape (n_queries, dimensions).
        texts: base vectors, shape (n_texts, dimensions).
        relevant: whether each text is relevant to each query, shape (n_queries, n_texts).
        cluster: cluster of each query, shape (n_queries,); queries of one cluster share positives.
        part: 0 train, 1 test, 2 truth; the same within a cluster.
    """

    queries: Floats
    texts: Floats
    relevant: NDArray[np.bool_]
    cluster: Ints
    part: Ints

    @cached_property
    def _scores(self) -> Floats:
        """Scores by the base, shape (n_queries, n_texts)."""
        return np.asarray(self.queries @ self.texts.T)

    def ndcg(self, rows: Ints, weight: Floats | None) -> NDArray[np.float64]:
        """nDCG@10 of some queries under a map; None: the base. Shape (len(rows),)."""
        vectors = self.queries[rows] if weight is None else whiten(self.queries[rows], weight)
        scores = vectors @ self.texts.T
        top = np.argpartition(-scores, DEPTH, axis=1)[:, :DEPTH]
        top = np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, 1), axis=1, kind="stable"), 1)
        discount = 1 / np.log2(np.arange(2, DEPTH + 2))
        gains = self.relevant[rows[:, None], top] @ discount
        ideal = np.cumsum(discount)[np.minimum(self.relevant[rows].sum(axis=1), DEPTH) - 1]
        return np.asarray(gains / ideal)

    def pairs(self, rows: Ints) -> TrainingPairs:
        """Training pairs of some queries, with the negatives nearest to the base vectors."""
        query, candidates, allowed = list[int](), list[Floats](), list[NDArray[np.bool_]]()
        for number, row in enumerate(rows):
            scores = self._scores[row]
            nearest = np.argpartition(-scores, N_NEAREST)[:N_NEAREST]
            nearest = nearest[np.argsort(-scores[nearest])]
            nearest = nearest[~self.relevant[row, nearest]]
            for positive in np.flatnonzero(self.relevant[row])[:MAX_POSITIVES]:
                negatives = nearest[scores[nearest] < scores[positive] - abs(scores[positive]) * MARGIN][:N_NEGATIVES]
                query.append(number)
                block = np.zeros((N_NEGATIVES + 1, self.texts.shape[1]), np.float32)
                block[: len(negatives) + 1] = self.texts[[positive, *negatives]]
                candidates.append(block)
                allowed.append(np.arange(N_NEGATIVES + 1) <= len(negatives))
        return TrainingPairs(self.queries[rows], np.array(query), np.stack(candidates), np.stack(allowed))

    def with_optimal_base(self, random: np.random.Generator) -> Topic:
        """The same topic, but each query's only relevant text is drawn by its rank (`OPTIMAL_RANKS`)."""
        top = np.argsort(-self._scores, axis=1)[:, : len(OPTIMAL_RANKS)]
        choice = random.choice(len(OPTIMAL_RANKS), len(top), p=OPTIMAL_RANKS)
        relevant = np.zeros_like(self.relevant)
        relevant[np.arange(len(top)), top[np.arange(len(top)), choice]] = True
        return Topic(self.queries, self.texts, relevant, self.cluster, self.part)


@dataclass(frozen=True)
class SyntheticTenant:
    """Rows of its topic's queries that are a tenant's: train, validation and test."""

    topic: int
    train: Ints
    validation: Ints
    test: Ints


def read_topics(path: Path, seed: int) -> list[Topic]:
    """The topics of a collection.

    Args:
        path: vectors and positives, as saved by `tenants.save_vectors`.
        seed: assigns clusters to parts.
    """
    arrays = np.load(path)
    queries, texts, query, text = (arrays[name] for name in ("queries", "texts", "query", "text"))
    n = len(queries)
    links = coo_matrix((np.ones(len(query)), (query, text + n)), shape=(n + len(texts),) * 2)
    cluster = connected_components(links, directed=False)[1][:n]
    part = np.searchsorted(np.cumsum(SHARES)[:2], np.random.default_rng(seed).random(cluster.max() + 1))[cluster]
    centers, topic = kmeans2(queries.astype(np.float64), TOPICS, minit="++", seed=0)
    topic_of_text = (texts @ centers.T.astype(np.float32)).argmax(axis=1)
    topics = []
    for number in range(TOPICS):
        rows = np.flatnonzero(topic == number)
        others = np.random.default_rng(seed).permutation(np.flatnonzero(topic_of_text == number))[:MAX_TEXTS]
        is_own = np.isin(query, rows)
        own = np.union1d(others, text[is_own])
        relevant = np.zeros((len(rows), len(own)), bool)
        relevant[np.searchsorted(rows, query[is_own]), np.searchsorted(own, text[is_own])] = True
        topics.append(Topic(queries[rows], texts[own], relevant, cluster[rows], part[rows]))
    return topics


def draw_tenants(topics: Sequence[Topic], count: int, random: np.random.Generator) -> list[SyntheticTenant]:
    """Tenants with Zipf sizes. No two share a test query; train queries may be shared.

    Args:
        topics: the topics.
        count: number of tenants; a topic has a share of them by its number of queries.
        random: draws sizes and queries.
    """
    shares = np.array([len(topic.queries) for topic in topics], np.float64)
    counts = np.floor(np.cumsum(shares / shares.sum()) * count + 0.5).astype(int)
    tenants = []
    for number, n_tenants in enumerate(np.diff([0, *counts])):
        if not n_tenants:
            continue
        topic = topics[number]
        test = random.permutation(np.unique(topic.cluster[topic.part == 1]))[: MEAN_TEST_CLUSTERS * n_tenants]
        train_rows = np.flatnonzero(topic.part == 0)
        weights = 1 / np.arange(1, n_tenants + 1)  # Zipf
        owner = np.concatenate([np.arange(n_tenants), random.choice(n_tenants, len(test), p=weights / weights.sum())])
        owner = owner[: len(test)]
        for tenant in range(n_tenants):
            clusters = test[owner == tenant]
            n_train = min(len(train_rows), 4 + 2 * len(clusters))
            drawn = random.permutation(train_rows)[:n_train]
            n_validation = max(1, n_train // 5)
            test_rows = np.flatnonzero((topic.part == 1) & np.isin(topic.cluster, clusters))
            tenants.append(SyntheticTenant(number, drawn[n_validation:], drawn[:n_validation], test_rows))
    return tenants
