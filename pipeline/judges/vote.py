"""How a panel's replies to the same pairs become one: by majority of labels, or by the mean of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.judges.port import REPLIES

TIE = "the panel is tied, and not all of its votes have a probability"
NO_PROBABILITY = "no member of the panel gave a probability"
_SUMS = ("prompt_tokens", "cached_tokens", "completion_tokens", "attempts")
_Floats = NDArray[np.float64]
_Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Vote:
    """How a panel decides.

    Attributes:
        rule: majority counts labels, a tie goes to the mean probability; mean goes by it alone.
        weights: of the members' probabilities, 0 and more, not all 0; a majority counts heads.
        threshold: relevant from this mean probability on.
    """

    rule: Literal["majority", "mean"]
    weights: tuple[float, ...]
    threshold: float

    def pooled(self, said: Sequence[pa.Table]) -> pa.Table:
        """One reply for each pair: null where nobody's could be read, or where the vote decides nothing.

        A reply without a label takes no part; one without a probability takes no part in the mean. Tokens and
        attempts are sums; grades and words stay with the members.

        Args:
            said: rows of `REPLIES` of each member, to the same pairs in the same order.
        """
        labels = _stack(said, "relevant", np.nan)
        probability = np.where(np.isnan(labels), np.nan, _stack(said, "probability", np.nan))
        mean = self._mean(probability)
        decided, relevant = self._by_mean(mean) if self.rule == "mean" else self._by_count(labels, probability, mean)
        reason = np.full(len(mean), TIE if self.rule == "majority" else NO_PROBABILITY, dtype=object)
        silent = np.flatnonzero(np.isnan(labels).all(axis=0))
        reason[silent] = _reasons([one["error"].take(pa.array(silent)) for one in said])
        columns = {
            "relevant": pa.array(relevant, mask=~decided),
            "probability": pa.array(mean.astype(np.float32), mask=np.isnan(mean) | ~decided),
            "truncated": _any([one["truncated"] for one in said]),
            "error": pa.array(reason, pa.string(), mask=decided),
            **{name: _sum([one[name] for one in said]) for name in _SUMS},
        }
        arrays = [columns.get(field.name, pa.nulls(len(mean), field.type)) for field in REPLIES]
        return pa.Table.from_arrays(arrays, schema=REPLIES)

    def _mean(self, probability: _Floats) -> _Floats:
        """Weighted mean of those that are known; NaN where none of a weight above 0 is."""
        weights = np.array(self.weights)[:, None] * ~np.isnan(probability)
        total = weights.sum(axis=0)
        summed = (weights * np.nan_to_num(probability)).sum(axis=0)
        return np.asarray(np.divide(summed, total, out=np.full(len(total), np.nan), where=total > 0))

    def _by_mean(self, mean: _Floats) -> tuple[_Mask, _Mask]:
        return ~np.isnan(mean), mean.astype(np.float32) >= np.float32(self.threshold)

    def _by_count(self, labels: _Floats, probability: _Floats, mean: _Floats) -> tuple[_Mask, _Mask]:
        yes, no = (labels == 1).sum(axis=0), (labels == 0).sum(axis=0)
        likely = ~(np.isnan(probability) & ~np.isnan(labels)).any(axis=0) & ~np.isnan(mean) & (yes > 0)
        _, relevant = self._by_mean(mean)
        return (yes != no) | likely, np.where(yes == no, relevant, yes > no)


def _stack(said: Sequence[pa.Table], name: str, missing: float) -> _Floats:
    """A column of every member, shape (n_members, n_pairs)."""
    return np.stack([pc.fill_null(one[name].cast(pa.float64()), missing).to_numpy() for one in said])


def _reasons(errors: Sequence[pa.ChunkedArray]) -> NDArray[np.object_]:
    given = [pc.fill_null(column, "no reason given") for column in errors]
    return np.asarray(pc.binary_join_element_wise(*given, "; ").to_numpy(), dtype=object)


def _any(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    found = columns[0]
    for column in columns[1:]:
        found = pc.or_kleene(found, column)
    return found


def _sum(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Null where all are."""
    known = pc.coalesce(*columns)
    total = pc.fill_null(columns[0], 0)
    for column in columns[1:]:
        total = pc.add(total, pc.fill_null(column, 0))
    return pc.if_else(pc.is_valid(known), total, None).cast(columns[0].type)
