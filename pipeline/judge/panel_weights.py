"""Weights of a panel's members by agreement with people."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.judge.logistic import Logistic
from darklode.pipeline.judge.panel import weighted_mean

DEVIATION_VARIANCE = 0.03
"""Prior variance of a member's deviation from the common weight; that of the common weight is 1.

Chosen on trec-dl-2019's recorded judges: mean kappa on held-out topics .375; .371 at 0.01, .368 at 0.1, .361 at 0.3,
.356 with equal weights.
"""
_DECIMALS = 3  # of weights, as they are printed and set


def weighted_votes(votes: Doubles, weights: tuple[float, ...]) -> Doubles:
    """Label of each pair by a weighted majority, 1, or 0 also if tied; NaN if no member with a weight has a vote.

    Args:
        votes: 1, 0 or NaN, shape (n_pairs, n_members).
        weights: of the members, >= 0.

    Returns:
        Shape (n_pairs,).
    """
    share = weighted_mean(votes.T, weights).round(9)
    return np.where(np.isnan(share), np.nan, share > 0.5)


def scale_weights(weights: Doubles) -> tuple[float, ...]:
    """Negative weights become 0, and the largest 1; equal weights if none is above 0."""
    positive_weights = np.clip(weights, 0, None)
    if not positive_weights.any():
        positive_weights = np.ones(len(weights))
    return tuple(map(float, (positive_weights / positive_weights.max()).round(_DECIMALS)))


def stack_members(votes: Doubles, positive: NDArray[np.bool_]) -> tuple[float, ...]:
    """Weights by logistic regression of people's labels on the members' votes, shrunk toward equal weights.

    Stacking (Wolpert, 1992) with non-negative weights (Breiman, 1996). The penalty is on each member's deviation from
    the common weight, because a few hundred labels tell members apart poorly. The intercept is not used: a fitted
    threshold agrees less with people on new queries than half of the weights.

    Args:
        votes: 1, 0 or NaN, shape (n_pairs, n_members), at least one known in each row; a missing vote is replaced by
            the mean of the others.
        positive: people's labels, shape (n_pairs,); both values must occur.
    """
    mean = np.nanmean(votes, axis=1, keepdims=True)
    deviations = np.where(np.isnan(votes), 0.0, votes - mean)
    variance = np.concatenate([[1.0], np.full(votes.shape[1], DEVIATION_VARIANCE)])
    common, *own = Logistic.fit(np.hstack([mean, deviations]), positive, variance).weights
    return scale_weights(common / len(own) + np.array(own) - np.mean(own))
