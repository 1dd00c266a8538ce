"""Evidence of a tenant that nobody searched: one feature, and terms, that say something of the labels."""

from typing import Any

import numpy as np
from scipy import sparse

from darklode.pipeline.judge.adaptive.learner import sigmoid
from darklode.pipeline.judge.adaptive.pool_features import Evidence


def made(n_queries: int = 30, size: int = 150, seed: int = 0) -> tuple[Evidence, Any]:
    """Evidence in which feature and terms say something of the labels, and those."""
    dice = np.random.default_rng(seed)
    n = n_queries * size
    strength = dice.normal(size=n) + np.repeat(dice.normal(size=n_queries), size)
    labels = (dice.random(n) < sigmoid(2 * strength - 4)).astype(float)
    scores = strength + dice.normal(size=n)
    starts = np.arange(n_queries + 1) * size
    place = np.concatenate([1 + np.argsort(np.argsort(-part)) for part in scores.reshape(-1, size)])
    terms = sparse.csr_matrix(np.eye(40, dtype=np.float32)[dice.integers(0, 40, n)])
    alike = sparse.csr_matrix((n_queries, n_queries))
    return Evidence(starts, place, scores[:, None].astype(np.float32), np.array([0]), terms, alike), labels
