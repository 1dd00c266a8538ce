"""What else could be done than to label more queries: another source of labels, a larger model, judging deeper."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from darklode.pipeline.laws.costs import Model, Spent
from darklode.pipeline.laws.forms import SIZE, STARTED
from darklode.pipeline.laws.plan import FAR, Wanted, at, needed
from darklode.pipeline.laws.points import FALLING, LawKey, rows_of
from darklode.pipeline.laws.verdict import LAW, Found

Row = dict[str, Any]

OWN = "labels"
"""The source that others are held against."""

MACHINES = ("bm25", "ict", "shuffled")
"""Sources that cost nothing."""


def others(rows: pa.Table, laws: Mapping[LawKey, Found]) -> list[Row]:
    """What each other source reaches against the run's own labels, at the largest size of both, seed by seed."""
    found = []
    for key in laws:
        own, (measure, source, _) = key._replace(source=OWN), key
        if source == OWN or own not in laws:
            continue
        sides = [rows_of(rows, one) for one in (own, key)]
        size = max(set(sides[0]["size"].to_pylist()) & set(sides[1]["size"].to_pylist()), default=None)
        if size:
            gain = _paired(measure, *(side.filter(pc.equal(side["size"], size)) for side in sides))
            worth = _worth(laws[own], laws[key], size)
            said = f"{key.label} instead of {OWN} at {size:,} queries: {_told(gain, measure)}{worth}"
            money = {"money": 0.0} if source in MACHINES else {}
            choice = key._asdict() | {"choice": "another source", "unit": "queries"}
            found.append(choice | {"amount": float(size), "said": f"{said}."} | _gain(gain) | money)
    return found


def _worth(own: Found, other: Found, size: int) -> str:
    """So many of the run's own labels do as much, where a law of theirs stands."""
    if own.verdict != LAW or own.whole is None or own.whole.form not in (SIZE, STARTED):
        return ""
    reached = float(other.points.value[other.points.size == size].mean())
    if reached >= at(own.whole, 1.0):
        return "; no label at all does as much"
    many = needed(own.whole, reached)
    most = FAR * float(own.points.size.max())
    return f"; as much as {many:,.0f} labels" if np.isfinite(many) else f"; as much as more than {most:,.0f} labels"


def models(rows: pa.Table, laws: Mapping[LawKey, Found], spent: Spent, wanted: Wanted) -> list[Row]:
    """What each larger model reaches against the next smaller one, at the largest size of both, seed by seed.

    Of the encoders of one law, which differ in parameters.
    """
    found = []
    for key in laws:
        measure, source, _ = key
        mine = rows_of(rows, key)
        sizes = sorted(set(pc.drop_null(mine["parameters"]).to_pylist()))
        for small, large in pairwise(sizes):
            sides = [mine.filter(pc.equal(mine["parameters"], one)) for one in (small, large)]
            size = max(set(sides[0]["size"].to_pylist()) & set(sides[1]["size"].to_pylist()), default=None)
            if size is None:
                continue
            gain = _paired(measure, *(side.filter(pc.equal(side["size"], size)) for side in sides))
            costs = _more_hours(spent, small, large, wanted)
            said = (
                f"{source}: {large:,.0f} parameters instead of {small:,.0f} at {size:,} queries: {_told(gain, measure)}"
            )
            money = "" if costs is None else f"; training once and encoding the corpus cost {costs:,.2f} more"
            choice = key._asdict() | {"choice": "larger model", "unit": "parameters"}
            figures = {"amount": large - small, "money": costs, "said": f"{said}{money}."}
            found.append(choice | figures | _gain(gain))
    return found


def _more_hours(spent: Spent, small: float, large: float, wanted: Wanted) -> float | None:
    by_size: dict[float, Model] = {one.parameters: one for one in spent.models}
    if wanted.per_gpu_hour is None or not {small, large} <= by_size.keys():
        return None
    return (by_size[large].hours - by_size[small].hours) * wanted.per_gpu_hour


def deeper(spent: Spent) -> list[Row]:
    """What one more doubling of the pool's depth finds at most, against what new queries give for as many calls."""
    seen, below = ([row for row in spent.depths if row["judged"] == judged] for judged in (True, False))
    if not below:
        return []
    row, last = below[0], seen[-1]
    money = None if spent.per_call is None else spent.per_call * row["calls"]
    cost = "" if money is None else f" for {money:,.2f}"
    said = f"judging ranks {row['from_rank']} to {row['to_rank']}, too, takes {row['calls']:,} calls{cost}"
    each = sum(one["calls"] for one in seen) / max(sum(one["positives"] for one in seen), 1)
    figures = {"amount": float(row["calls"]), "unit": "calls", "money": money}
    said += f"{_found(row, last)}; a positive takes {each:.1f} calls at a new query. Laws count queries: what more"
    said += " positives of the same ones bring is not known."
    return [{"measure": None, "source": None, "choice": "judge deeper", "said": said} | figures]


def _found(row: Row, last: Row) -> str:
    """What those ranks give at most, if positives grow no denser with depth."""
    ranks = f"ranks {last['from_rank']} to {last['to_rank']}"
    each = last["calls_per_positive"]
    if each is None:
        return f": the {last['calls']:,} at {ranks} found nothing"
    high = "?" if last["high"] is None else f"{last['high']:.1f}"
    took = f"a positive took {each:.1f} calls ({last['low']:.1f} to {high}) at {ranks}"
    return f" and finds {row['calls'] / each:,.0f} positives at most, if they grow no denser: {took}"


def _paired(measure: str, own: pa.Table, other: pa.Table) -> tuple[float, float, float]:
    """How much better the other is, mean over pairs of one seed, and its 95 % interval by Student's t; else NaN."""
    means = [side.group_by("seed").aggregate([("value", "mean")]) for side in (own, other)]
    both = means[0].join(means[1], "seed", right_suffix="_other", join_type="inner").sort_by("seed")
    if not both.num_rows:  # without seeds there is nothing to pair
        gap = float(np.mean(other["value"].to_numpy()) - np.mean(own["value"].to_numpy()))
        return (-gap if measure in FALLING else gap), float("nan"), float("nan")
    gaps = both["value_mean_other"].to_numpy() - both["value_mean"].to_numpy()
    gaps = -gaps if measure in FALLING else gaps
    if len(gaps) == 1:
        return float(gaps[0]), float("nan"), float("nan")
    half = float(stdtrit(len(gaps) - 1, 0.975) * gaps.std(ddof=1) / np.sqrt(len(gaps)))
    return float(gaps.mean()), float(gaps.mean() - half), float(gaps.mean() + half)


def _gain(gain: tuple[float, float, float]) -> Row:
    names = ("gain", "gain_low", "gain_high")
    return {name: value if np.isfinite(value) else None for name, value in zip(names, gain, strict=True)}


def _told(gain: tuple[float, float, float], measure: str) -> str:
    between = "" if np.isnan(gain[1]) else f" ({gain[1]:+.4f} to {gain[2]:+.4f})"
    return f"{measure} is better by {gain[0]:+.4f}{between}"
