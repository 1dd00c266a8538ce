"""Weights of people's labels of a stratified sample."""

import numpy as np

from darklode.pipeline.base.types import Doubles, Ints, Mask

STRATA_SQL = """
    SELECT position, any_value(verdict) = 'relevant' AS is_found, CAST(sum(pairs) AS BIGINT) AS pairs
    FROM review_strata WHERE retriever IS NULL GROUP BY position ORDER BY position
"""
"""The strata of the review sample: their number of pairs, and whether the judge calls these relevant."""


def nearest_labelled(n_labelled: Ints, is_found: Mask) -> Ints:
    """Find the stratum whose labels stand for each stratum: itself, or the nearest one of the same verdict with labels.

    Small strata have no labels in an unfinished review.

    Args:
        n_labelled: number of labels of each stratum; adjacent strata are next to each other.
        is_found: whether the judge calls the stratum relevant, same shape.

    Returns:
        Index of the stratum, -1 if no stratum of the verdict has labels, same shape.
    """
    target = np.full(len(n_labelled), -1)
    for verdict in (True, False):
        same_verdict = np.flatnonzero(is_found == verdict)
        labelled = same_verdict[n_labelled[same_verdict] > 0]
        if len(labelled):
            target[same_verdict] = labelled[np.abs(same_verdict[:, None] - labelled).argmin(axis=1)]
    return target


def weigh_labels(stratum: Ints, pairs: Ints, is_found: Mask) -> Doubles:
    """Compute the number of pairs that each label stands for.

    Args:
        stratum: stratum of each label, shape (n_labels,).
        pairs: number of pairs of each stratum.
        is_found: whether the judge calls the stratum relevant, same shape.
    """
    n_labelled = np.bincount(stratum, minlength=len(pairs))
    target = nearest_labelled(n_labelled, is_found)
    represented = np.bincount(target[target >= 0], pairs[target >= 0], minlength=len(pairs))
    return np.asarray((represented / np.maximum(n_labelled, 1))[stratum], np.float64)
