"""Alternatives to labeling more queries: another label source, a larger model, or judging deeper."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from darklode.pipeline.base.types import Row
from darklode.pipeline.laws import format
from darklode.pipeline.laws.costs import MeasuredCosts, ModelCost
from darklode.pipeline.laws.functional_forms import SIZE, STARTED
from darklode.pipeline.laws.label_plan import MAX_EXTRAPOLATION, PlanRequest, loss_at, size_for_loss
from darklode.pipeline.laws.points import FALLING, LawKey, rows_of
from darklode.pipeline.laws.verdict import LAW, LawResult

OWN_LABELS = "labels"
"""The source that the others are compared with."""

FREE_SOURCES = ("bm25", "ict", "shuffled")
"""Label sources that cost nothing."""


def compare_sources(rows: pa.Table, laws: Mapping[LawKey, LawResult]) -> list[Row]:
    """Compare each other source with the run's own labels, at the largest common size, paired by seed."""
    rows_out = []
    for key in laws:
        own_key, (measure, source, _) = key._replace(source=OWN_LABELS), key
        if source == OWN_LABELS or own_key not in laws:
            continue
        sides = [rows_of(rows, law_key) for law_key in (own_key, key)]
        size = max(set(sides[0]["size"].to_pylist()) & set(sides[1]["size"].to_pylist()), default=None)
        if size:
            gain = _paired_gain(measure, *(side.filter(pc.equal(side["size"], size)) for side in sides))
            worth = _equivalent_labels(laws[own_key], laws[key], size)
            sentence = format.other_source(key.label, OWN_LABELS, size, format.measured_gain(gain, measure), worth)
            money = {"money": 0.0} if source in FREE_SOURCES else {}
            choice = key._asdict() | {"choice": "another source", "unit": "queries"}
            rows_out.append(choice | {"amount": float(size), "said": sentence} | _gain(gain) | money)
    return rows_out


def _equivalent_labels(own: LawResult, other: LawResult, size: int) -> str:
    """How many of the run's own labels reach the same, if they follow an accepted law."""
    if own.verdict != LAW or own.full_fit is None or own.full_fit.form not in (SIZE, STARTED):
        return ""
    mean_value = float(other.points.value[other.points.size == size].mean())
    if mean_value >= loss_at(own.full_fit, 1.0):
        return format.NO_LABELS_DO_AS_MUCH
    n_labels = size_for_loss(own.full_fit, mean_value)
    return format.equivalent_labels(n_labels, MAX_EXTRAPOLATION * float(own.points.size.max()))


def compare_models(
    rows: pa.Table, laws: Mapping[LawKey, LawResult], costs: MeasuredCosts, request: PlanRequest
) -> list[Row]:
    """Compare each larger model with the next smaller one, at the largest common size, paired by seed.

    Only encoders that share a law are compared, because they differ in parameters only.
    """
    rows_out = []
    for key in laws:
        measure, source, _ = key
        key_rows = rows_of(rows, key)
        sizes = sorted(set(pc.drop_null(key_rows["parameters"]).to_pylist()))
        for small, large in pairwise(sizes):
            sides = [key_rows.filter(pc.equal(key_rows["parameters"], n_parameters)) for n_parameters in (small, large)]
            size = max(set(sides[0]["size"].to_pylist()) & set(sides[1]["size"].to_pylist()), default=None)
            if size is None:
                continue
            gain = _paired_gain(measure, *(side.filter(pc.equal(side["size"], size)) for side in sides))
            cost = _more_hours(costs, small, large, request)
            gain_text = format.measured_gain(gain, measure)
            sentence = format.larger_model(source, (small, large), size, gain_text, cost)
            choice = key._asdict() | {"choice": "larger model", "unit": "parameters"}
            figures = {"amount": large - small, "money": cost, "said": sentence}
            rows_out.append(choice | figures | _gain(gain))
    return rows_out


def _more_hours(costs: MeasuredCosts, small: float, large: float, request: PlanRequest) -> float | None:
    by_size: dict[float, ModelCost] = {model.parameters: model for model in costs.models}
    if request.per_gpu_hour is None or not {small, large} <= by_size.keys():
        return None
    return (by_size[large].hours - by_size[small].hours) * request.per_gpu_hour


def judge_deeper(costs: MeasuredCosts) -> list[Row]:
    """Upper bound of the positives in the next doubling of the pool depth, against new queries for as many calls."""
    judged_depths, below = ([row for row in costs.depths if row["judged"] == judged] for judged in (True, False))
    if not below:
        return []
    row, last = below[0], judged_depths[-1]
    money = None if costs.per_call is None else costs.per_call * row["calls"]
    each = sum(depth["calls"] for depth in judged_depths) / max(sum(depth["positives"] for depth in judged_depths), 1)
    sentence = format.deeper_judging(row, last, money, each)
    figures = {"amount": float(row["calls"]), "unit": "calls", "money": money}
    return [{"measure": None, "source": None, "choice": "judge deeper", "said": sentence} | figures]


def _paired_gain(measure: str, own: pa.Table, other: pa.Table) -> tuple[float, float, float]:
    """Mean gain over pairs of one seed and its 95 % interval by Student's t; NaN if there are too few."""
    means = [side.group_by("seed").aggregate([("value", "mean")]) for side in (own, other)]
    paired = means[0].join(means[1], "seed", right_suffix="_other", join_type="inner").sort_by("seed")
    if not paired.num_rows:  # without seeds there is nothing to pair
        gap = float(np.mean(other["value"].to_numpy()) - np.mean(own["value"].to_numpy()))
        return (-gap if measure in FALLING else gap), float("nan"), float("nan")
    gaps = paired["value_mean_other"].to_numpy() - paired["value_mean"].to_numpy()
    gaps = -gaps if measure in FALLING else gaps
    if len(gaps) == 1:
        return float(gaps[0]), float("nan"), float("nan")
    half = float(stdtrit(len(gaps) - 1, 0.975) * gaps.std(ddof=1) / np.sqrt(len(gaps)))
    return float(gaps.mean()), float(gaps.mean() - half), float(gaps.mean() + half)


def _gain(gain: tuple[float, float, float]) -> Row:
    names = ("gain", "gain_low", "gain_high")
    return {name: value if np.isfinite(value) else None for name, value in zip(names, gain, strict=True)}
