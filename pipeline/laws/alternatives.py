"""Alternatives to labeling more queries: another label source, a larger model, or judging deeper.

Gains are measured at grid points that exist, not predicted by a law, so they need no accepted law.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from darklode.pipeline.base.finite import finite_or_none
from darklode.pipeline.base.types import Row
from darklode.pipeline.laws import format
from darklode.pipeline.laws.costs import MeasuredCosts, ModelCost
from darklode.pipeline.laws.functional_forms import SIZE, SIZE_WITH_OFFSET
from darklode.pipeline.laws.label_plan import MAX_EXTRAPOLATION, PlanRequest, loss_at, size_for_loss
from darklode.pipeline.laws.points import LOWER_IS_BETTER, LawKey, rows_of
from darklode.pipeline.laws.verdict import LAW, LawResult

OWN_LABELS = "labels"
"""Label source "the run's own labels"; every other source is compared with it."""

FREE_SOURCES = ("bm25", "ict", "shuffled")
"""Label sources that cost nothing: BM25 pseudo-labels, inverse cloze tasks (ICT), and shuffled labels as a control."""


def compare_sources(rows: pa.Table, laws: Mapping[LawKey, LawResult]) -> list[Row]:
    """Compare each other label source with the run's own labels.

    Both are compared at the largest size that both have, paired by seed. Sources without a common size are left out.

    Args:
        rows: the table `law_points`.
        laws: the recorded result of each law.

    Returns:
        Rows of `law_plan`, one per law of another source.
    """
    plan_rows = []
    for key in laws:
        own_key = key._replace(source=OWN_LABELS)
        if key.source == OWN_LABELS or own_key not in laws:
            continue
        own_rows, other_rows = rows_of(rows, own_key), rows_of(rows, key)
        size = _largest_common_size(own_rows, other_rows)
        if size:
            gain = _paired_gain(key.measure, _rows_at(own_rows, size), _rows_at(other_rows, size))
            equivalent = _equivalent_labels(laws[own_key], laws[key], size)
            gain_text = format.measured_gain(gain, key.measure)
            sentence = format.other_source(key.label, OWN_LABELS, size, gain_text, equivalent)
            money = {"money": 0.0} if key.source in FREE_SOURCES else {}
            choice = key._asdict() | {"option": "another source", "unit": "queries"}
            plan_rows.append(choice | {"amount": float(size), "advice": sentence} | _gain_columns(gain) | money)
    return plan_rows


def _largest_common_size(rows: pa.Table, other_rows: pa.Table) -> int | None:
    """The largest number of labelled queries at which both tables have points; None if there is none."""
    return max(set(rows["size"].to_pylist()) & set(other_rows["size"].to_pylist()), default=None)


def _rows_at(rows: pa.Table, size: int) -> pa.Table:
    return rows.filter(pc.equal(rows["size"], size))


def _equivalent_labels(own: LawResult, other: LawResult, size: int) -> str:
    """Sentence part: how many of the run's own labels reach the loss of the other source at a size.

    Empty if the run's own labels follow no accepted law of D, because only such a law can be inverted.
    """
    if own.verdict != LAW or own.full_fit is None or own.full_fit.form not in (SIZE, SIZE_WITH_OFFSET):
        return ""
    mean_loss = float(other.points.value[other.points.size == size].mean())
    if mean_loss >= loss_at(own.full_fit, 1.0):
        return format.NO_LABELS_DO_AS_MUCH
    n_labels = size_for_loss(own.full_fit, mean_loss)
    return format.equivalent_labels(n_labels, MAX_EXTRAPOLATION * float(own.points.size.max()))


def compare_models(
    rows: pa.Table, laws: Mapping[LawKey, LawResult], costs: MeasuredCosts, request: PlanRequest
) -> list[Row]:
    """Compare each larger model with the next smaller one.

    Both are compared at the largest size that both have, paired by seed. Only encoders that share a law are compared.

    Args:
        rows: the table `law_points`.
        laws: the recorded result of each law.
        costs: training and encoding times of the encoders.
        request: the price of an hour of the training machine.

    Returns:
        Rows of `law_plan`, one per pair of neighbouring model sizes.
    """
    plan_rows = []
    for key in laws:
        key_rows = rows_of(rows, key)
        model_sizes = sorted(set(pc.drop_null(key_rows["parameters"]).to_pylist()))
        for small, large in pairwise(model_sizes):
            small_rows = key_rows.filter(pc.equal(key_rows["parameters"], small))
            large_rows = key_rows.filter(pc.equal(key_rows["parameters"], large))
            size = _largest_common_size(small_rows, large_rows)
            if size is None:
                continue
            gain = _paired_gain(key.measure, _rows_at(small_rows, size), _rows_at(large_rows, size))
            money = _extra_cost(costs, small, large, request)
            gain_text = format.measured_gain(gain, key.measure)
            sentence = format.larger_model(key.source, (small, large), size, gain_text, money)
            choice = key._asdict() | {"option": "larger model", "unit": "parameters"}
            figures = {"amount": large - small, "money": money, "advice": sentence}
            plan_rows.append(choice | figures | _gain_columns(gain))
    return plan_rows


def _extra_cost(costs: MeasuredCosts, small: float, large: float, request: PlanRequest) -> float | None:
    """What the larger model costs more, in money: training once and encoding the corpus; None if unknown.

    Args:
        costs: training and encoding times of the encoders.
        small: number of parameters of the smaller model.
        large: number of parameters of the larger model.
        request: the price of an hour of the training machine.
    """
    model_costs: dict[float, ModelCost] = {model.parameters: model for model in costs.models}
    if request.per_gpu_hour is None or not {small, large} <= model_costs.keys():
        return None
    return (model_costs[large].hours - model_costs[small].hours) * request.per_gpu_hour


def judge_deeper(costs: MeasuredCosts) -> list[Row]:
    """Compare judging twice as deep with judging new queries for as many calls.

    Returns:
        One row of `law_plan` with an upper bound of the positives that deeper judging finds; none if nothing is ranked
        below the judged depth.
    """
    judged_depths = [row for row in costs.depths if row["judged"]]
    unjudged_depths = [row for row in costs.depths if not row["judged"]]
    if not unjudged_depths:
        return []
    next_depth, deepest_judged = unjudged_depths[0], judged_depths[-1]
    money = None if costs.per_call is None else costs.per_call * next_depth["calls"]
    n_positives = sum(depth["positives"] for depth in judged_depths)
    calls_per_positive = sum(depth["calls"] for depth in judged_depths) / max(n_positives, 1)
    sentence = format.deeper_judging(next_depth, deepest_judged, money, calls_per_positive)
    figures = {"amount": float(next_depth["calls"]), "unit": "calls", "money": money}
    return [{"measure": None, "source": None, "option": "judge deeper", "advice": sentence} | figures]


def _paired_gain(measure: str, own: pa.Table, other: pa.Table) -> tuple[float, float, float]:
    """Mean gain of the other rows over the own ones and its 95 % interval by Student's t, paired by seed.

    Above 0 if the other rows are better, also for measures of which less is better. The ends are NaN if fewer than two
    seeds occur on both sides.
    """
    own_means, other_means = (side.group_by("seed").aggregate([("value", "mean")]) for side in (own, other))
    paired = own_means.join(other_means, "seed", right_suffix="_other", join_type="inner").sort_by("seed")
    if not paired.num_rows:  # without common seeds there is nothing to pair
        difference = float(np.mean(other["value"].to_numpy()) - np.mean(own["value"].to_numpy()))
        return (-difference if measure in LOWER_IS_BETTER else difference), float("nan"), float("nan")
    differences = paired["value_mean_other"].to_numpy() - paired["value_mean"].to_numpy()
    gains = -differences if measure in LOWER_IS_BETTER else differences
    if len(gains) == 1:
        return float(gains[0]), float("nan"), float("nan")
    half_width = float(stdtrit(len(gains) - 1, 0.975) * gains.std(ddof=1) / np.sqrt(len(gains)))
    return float(gains.mean()), float(gains.mean() - half_width), float(gains.mean() + half_width)


def _gain_columns(gain: tuple[float, float, float]) -> Row:
    """Columns of `law_plan` for a gain and its interval; NaN becomes null."""
    names = ("gain", "gain_low", "gain_high")
    return {name: finite_or_none(value) for name, value in zip(names, gain, strict=True)}
