"""What people said of the sample, by query and stratum: all that the estimates for the run need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Strata:
    """Strata of some part of the run, neighbours beside one another.

    Attributes:
        pairs: pairs of the run, shape (n_strata,).
        found: the judge found them relevant, shape (n_strata,).
        labelled: labelled pairs of each query, shape (n_queries, n_strata).
        relevant: those of them that people found relevant, same shape.
    """

    pairs: _Counts
    found: NDArray[np.bool_]
    labelled: _Counts
    relevant: _Counts

    @property
    def n(self) -> _Counts:
        """Labelled pairs of each stratum."""
        return np.asarray(self.labelled.sum(axis=0))

    @property
    def x(self) -> _Counts:
        """Relevant ones."""
        return np.asarray(self.relevant.sum(axis=0))

    def known(self, found: bool) -> bool:
        """Whether anything is labelled of what the judge found, or did not find; nothing to label is known, too."""
        of = self.found == found
        return bool(self.n[of].sum() > 0 or not self.pairs[of].sum())


def merge_empty(strata: Strata) -> tuple[Strata, _Counts]:
    """Give the pairs of strata without a label to the nearest stratum that has one, on the same side of the verdict.

    Returns:
        The strata that have labels, and for each of the given strata which of them it went to, -1 where there is none.
    """
    n = strata.n
    kept = np.flatnonzero(n)
    to = np.full(len(n), -1)
    for side in (True, False):
        own, labelled = np.flatnonzero(strata.found == side), kept[strata.found[kept] == side]
        if len(labelled):
            nearest = np.abs(own[:, None] - labelled[None, :]).argmin(axis=1)
            to[own] = np.searchsorted(kept, labelled)[nearest]
    pairs = np.bincount(to[to >= 0], strata.pairs[to >= 0], minlength=len(kept)).astype(np.int64)
    return Strata(pairs, strata.found[kept], strata.labelled[:, kept], strata.relevant[:, kept]), to
