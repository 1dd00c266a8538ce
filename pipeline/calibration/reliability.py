"""Whether probabilities mean what they say: the reliability curve and the expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 10
_Z = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The reliability curve, one value a bin, by probability; each of shape (n_bins,).

    Attributes:
        labels: labelled pairs in the bin.
        lowest: lowest probability in the bin.
        highest: highest probability in the bin.
        mean_probability: what the judge said.
        relevant_share: what people said.
        share_low: lower end of its 95 % Wilson interval.
        share_high: upper end.
    """

    labels: NDArray[np.int64]
    lowest: _Floats
    highest: _Floats
    mean_probability: _Floats
    relevant_share: _Floats
    share_low: _Floats
    share_high: _Floats

    @property
    def ece(self) -> float:
        """Expected calibration error, 0 to 1: mean gap between said and seen, weighted by the bins' sizes."""
        gaps = np.abs(self.mean_probability - self.relevant_share)
        return float(np.sum(self.labels * gaps) / np.sum(self.labels))


def reliability_curve(probability: NDArray[np.float32], positive: NDArray[np.bool_]) -> Curve:
    """Bins of equal size, at most ten; equal probabilities are never parted, so that bins may differ or be fewer.

    Equal size follows Nguyen and O'Connor (2015): a judge says most probabilities near 0 and 1, and bins of equal
    width would leave the middle empty.

    Args:
        probability: shape (n_pairs,), none missing, n_pairs > 0.
        positive: human labels, shape (n_pairs,).
    """
    order = np.argsort(probability, kind="stable")
    said, seen = probability[order].astype(np.float64), positive[order]
    place = np.searchsorted(said, said) * BINS // len(said)
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    sizes = np.diff(starts, append=len(said))
    hits = np.add.reduceat(seen.astype(np.int64), starts)
    low, high = wilson(hits, sizes)
    return Curve(sizes, said[starts], said[starts + sizes - 1], _means(said, starts, sizes), hits / sizes, low, high)


def _means(values: _Floats, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> _Floats:
    return np.asarray(np.add.reduceat(values, starts) / sizes)


def wilson(hits: NDArray[np.int64], n: NDArray[np.int64]) -> tuple[_Floats, _Floats]:
    """95 % interval of a share, hits of n (Wilson, 1927); n > 0. It keeps within 0 and 1, and holds for small n."""
    share, spread = hits / n, _Z * _Z / n
    middle = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)
