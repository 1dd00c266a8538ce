"""A cascade of two judges: the small one answers what it is sure of, the large one the rest."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import kappas
from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.finite import finite_or_none
from darklode.pipeline.base.models.local import RERANKER_RECORD
from darklode.pipeline.base.types import Doubles
from darklode.pipeline.judge.port import REPLIES, Judge, Live


@dataclass(frozen=True)
class CascadeBand:
    """Which pairs the small judge leaves to the large one.

    Attributes:
        low: probability up to which it answers not relevant; None: never.
        high: probability from which on it answers relevant; None: never.
        large_share: share of pairs left to the large judge, on queries that did not choose the band.
        kappa: kappa of the cascade with the large judge, on the same queries; None: undefined.
    """

    low: float | None
    high: float | None
    large_share: float = 1.0
    kappa: float | None = None

    @classmethod
    def from_folder(cls, folder: str, min_kappa: float) -> Self:
        """The band with the fewest pairs for the large judge at a kappa with it, from the record of `judge distil`.

        Args:
            folder: output folder of `judge distil`, or its `reranker`.
            min_kappa: minimum kappa of the cascade with the large judge on the test queries.

        Raises:
            MissingPart: the folder has no such record.
        """
        bands = distilled_record(folder).get("bands")
        if not bands or "fold_counts" not in bands[0]:
            raise MissingPart(
                f"judge.small: {folder} holds no distilled judge of this version; make one with `darklode judge distil`"
            )
        return cls.choose(bands, min_kappa)

    @classmethod
    def choose(cls, bands: Sequence[Mapping[str, Any]], min_kappa: float) -> Self:
        """Choose on all test queries; share and kappa are of bands chosen on the other folds of these queries.

        Args:
            bands: rows of `cascade_bands`, by certainty; the last one leaves all pairs to the large judge.
            min_kappa: minimum kappa of the cascade with the large judge.
        """
        counts = np.array([band["fold_counts"] for band in bands], np.float64)  # (n_bands, n_folds, 5)
        best = bands[_cheapest(counts.sum(axis=1), min_kappa)]
        held_out = np.zeros(counts.shape[-1])
        for fold in range(counts.shape[1]):
            other_folds = np.delete(counts, fold, axis=1).sum(axis=1)
            held_out += counts[_cheapest(other_folds, min_kappa), fold]
        kappa = finite_or_none(kappas(held_out[:4])[0])
        return cls(best["low"], best["high"], float(held_out[4] / held_out[:4].sum()), kappa)

    def is_sure(self, probability: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Pairs outside of the band, same shape; NaN is inside."""
        low = -math.inf if self.low is None else np.float32(self.low)
        return np.asarray((probability <= low) | self.is_relevant(probability))

    def is_relevant(self, probability: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Pairs that the small judge calls relevant if it is sure, same shape."""
        return np.asarray(probability >= (math.inf if self.high is None else np.float32(self.high)))


def _cheapest(counts: Doubles, min_kappa: float) -> int:
    """The band with the fewest pairs for the large judge at a minimum kappa; the last one if none reaches it.

    Args:
        counts: sums of `fold_counts` of each band, shape (n_bands, 5).
        min_kappa: the minimum; an undefined kappa does not reach it.
    """
    sufficient = np.flatnonzero(kappas(counts[:, :4])[:, 0] >= min_kappa)
    return int(sufficient[np.argmin(counts[sufficient, 4])]) if len(sufficient) else len(counts) - 1


def distilled_record(folder: str) -> dict[str, Any]:
    """The record of `judge distil` or `train-reranker` in a folder; empty if there is none."""
    try:
        record = json.loads((Path(folder).expanduser() / RERANKER_RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


class Cascade(Judge):
    """Two judges, the second of which is asked only about the pairs that the first is not sure of.

    Source: FrugalGPT (Chen, Zaharia and Zou 2023), with a fixed band instead of a learned router.

    Args:
        small: gives probabilities.
        large: answers the pairs inside the band, and those without a probability.
        band: probabilities that are not sure.
        lowest_grade: grade of the small judge's relevant pairs, if the large one gives grades.
    """

    def __init__(self, small: Judge, large: Judge, band: CascadeBand, lowest_grade: int | None = None) -> None:
        self._small, self._large, self._band, self._lowest_grade = small, large, band, lowest_grade
        self._counts = {"answered_small": 0, "answered_large": 0}

    @property
    def judge_id(self) -> str:
        """Both judges and the band."""
        low, high = ("never" if edge is None else f"{edge:.6g}" for edge in (self._band.low, self._band.high))
        return f"cascade-1:{low}-{high}:[{self._small.judge_id} | {self._large.judge_id}]"

    @property
    def answering_ids(self) -> tuple[str, str]:
        """Ids of the small and of the large judge."""
        return self._small.judge_id, self._large.judge_id

    @property
    def facts(self) -> Mapping[str, int]:
        """Pairs answered by each, and the counters of the large judge."""
        return dict(self._large.facts) | self._counts

    @property
    def live(self) -> Live | None:
        """Progress of the large judge."""
        return self._large.live

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Reply to each pair: the small judge if it is sure, else the large one."""
        return (await self.route(pairs))[0]

    async def route(self, pairs: pa.Table) -> tuple[pa.Table, NDArray[np.int64]]:
        """Replies, and who gave each: 0 the small judge, 1 the large one; shape (n_pairs,)."""
        small = await self._small.judge(pairs)
        probability = pc.fill_null(small["probability"], math.nan).to_numpy()
        is_sure = self._band.is_sure(probability) & pc.is_valid(small["relevant"]).to_numpy()
        unsure = np.flatnonzero(~is_sure)
        self._counts["answered_small"] += int(is_sure.sum())
        self._counts["answered_large"] += len(unsure)
        answers = self._labelled(small, probability)
        answered_by = (~is_sure).astype(np.int64)
        if not len(unsure):
            return answers, answered_by
        large = await self._large.judge(pairs.take(pa.array(unsure)))
        source = np.arange(pairs.num_rows)
        source[unsure] = pairs.num_rows + np.arange(len(unsure))
        return pa.concat_tables([answers, large]).take(pa.array(source)).combine_chunks(), answered_by

    def _labelled(self, replies: pa.Table, probability: NDArray[np.float32]) -> pa.Table:
        """The small judge's replies with the labels of the band, whatever its own threshold, and with grades."""
        relevant = pa.array(self._band.is_relevant(probability), pa.bool_())
        columns = {"relevant": relevant}
        if self._lowest_grade is not None:
            columns["grade"] = pc.if_else(relevant, self._lowest_grade, None).cast(pa.int32())
        for name, values in columns.items():
            replies = replies.set_column(REPLIES.get_field_index(name), REPLIES.field(name), values)
        return replies
