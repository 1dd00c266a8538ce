"""What more labels would bring, and for what money: read off a law that stands, with intervals, never far beyond it.

Source: Scaling Laws for Dense Retrieval, Eq. 12: Z(N, D) = Z_data·D + Z_model·N, dollars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.optimize import brentq, minimize_scalar

from darklode.pipeline.base.bootstrap import ENDS
from darklode.pipeline.laws.bands import refits
from darklode.pipeline.laws.fit import CHANCE, RESAMPLES
from darklode.pipeline.laws.fitting import Fit
from darklode.pipeline.laws.forms import ADDITIVE, JOINT, STARTED, Points
from darklode.pipeline.laws.points import ENTROPY, FALLING, groups, points_of
from darklode.pipeline.laws.verdict import LAW, NO_LAW, Found, judge

STEP = {ENTROPY: 0.1}
"""What a gain is told for: .1 nats, and .01 of every other measure."""

FAR = 4.0
"""Times the largest size: beyond, a law says nothing."""

COSTS = """
    SELECT count(*) AS calls, count(DISTINCT (tenant, query_id)) AS queries,
           count(*) FILTER (relevant) AS positives, sum(prompt_tokens) AS prompt_tokens,
           sum(completion_tokens) AS completion_tokens
    FROM verdicts
"""

Row = dict[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What is asked.

    Attributes:
        budget: money to spend; None: not said.
        target: a value of the measure to reach; None: not said.
        per_label: price of a labelled query; None: nobody knows.
        per_parameter: price of a parameter, its training and the corpus' encoding; None: nobody knows.
    """

    budget: float | None = None
    target: float | None = None
    per_label: float | None = None
    per_parameter: float | None = None


def costs(verdicts: Iterable[Row], prices: tuple[float, float]) -> Row:
    """What a run's labels took: calls a positive, and the price of a labelled query by the judge's tokens.

    Args:
        verdicts: the answers to `COSTS`, one a run.
        prices: of a million prompt tokens, and of a million completion tokens.
    """
    rows = list(verdicts)
    total = {name: sum(row[name] or 0 for row in rows) for name in rows[0]} if rows else {}
    if not total or not total["queries"]:
        return {}
    spent = (total["prompt_tokens"] * prices[0] + total["completion_tokens"] * prices[1]) / 1e6
    known = any(prices) and total["prompt_tokens"] > 0
    each = total["calls"] / total["positives"] if total["positives"] else None
    return {
        "judged_queries": total["queries"],
        "calls_per_positive": each,
        "price_per_query": spent / total["queries"] if known else None,
    }


def plans(rows: pa.Table, wanted: Wanted, seed: int) -> list[Row]:
    """What more labels bring, of each measure and source.

    Args:
        rows: of `law_points`.
        wanted: budget, target and prices.
        seed: of the resamples.
    """
    told = []
    for measure, source in groups(rows):
        points = points_of(rows, measure, source)
        found = judge(points, CHANCE.get(measure), RESAMPLES, seed)
        row: Row = {"measure": measure, "source": source, "verdict": found.verdict, "labels": int(points.size.max())}
        if found.verdict != LAW or found.whole is None:
            told.append(row | {"next": first(found)})
        elif found.whole.form in (JOINT, ADDITIVE):
            told.append(row | _both(found.whole, wanted))
        else:
            told.append(row | _more(found.whole, measure, wanted, seed))
    return told


def first(found: Found) -> str:
    """What has to be labelled and trained before anything can be planned; nothing, where labels do not help."""
    if found.verdict == NO_LAW:
        return f"{found.reason}; no law says what more of these labels would bring"
    points, most = found.points, int(found.points.size.max())
    there = int(np.unique(points.size[~found.plateau]).size)
    lacking = STARTED.count + 2 - there
    if lacking <= 0:
        return f"{found.reason}; label {most:,} queries more, to size {2 * most:,}, and run again"
    sizes = ", ".join(f"{most * 2**more:,}" for more in range(1, lacking + 1))
    label = most * 2**lacking - most
    return f"{found.reason}; label {label:,} queries more, and train at sizes {sizes} first"


def _more(whole: Fit, measure: str, wanted: Wanted, seed: int) -> Row:
    """A law of D: the next step, what a budget buys, and what a target takes; each with its interval."""
    now, step = float(whole.points.size.max()), STEP.get(measure, 0.01)
    every = [whole, *(one for one, _ in refits(whole, RESAMPLES, seed))]

    def ends(name: str, figure: Callable[[Fit], float]) -> Row:
        values = [figure(one) for one in every]
        with np.errstate(invalid="ignore"):
            low, high = np.percentile(values[1:], ENDS, method="nearest")
        return {name: _finite(values[0]), f"{name}_low": _finite(low), f"{name}_high": _finite(high)}

    found: Row = {"step": step} | ends("queries_for_step", lambda one: needed(one, at(one, now) - step) - now)
    price = wanted.per_label
    if price and found["queries_for_step"] is not None:
        found |= {
            f"money_for_step{end}": _times(found[f"queries_for_step{end}"], price) for end in ("", "_low", "_high")
        }
    if wanted.budget is not None and price:
        more = wanted.budget / price
        found |= {"bought": more, "beyond": now + more > FAR * now}
        found |= ends("reached", lambda one: _value(at(one, now + more), measure))
    if wanted.target is not None:
        loss = wanted.target if measure in FALLING else 1 - wanted.target
        found |= ends("queries_for_target", lambda one: max(needed(one, loss) - now, 0.0))
        found["money_for_target"] = _times(found["queries_for_target"], price) if price else None
    return found


def at(one: Fit, size: float) -> float:
    """The loss at so many labelled queries."""
    return float(one.predict(one.points.at(np.array([size]), np.full(1, np.nan)))[0])


def needed(one: Fit, loss: float) -> float:
    """So many labelled queries give the loss; infinite where that takes more than `FAR` times the largest size."""
    now = float(one.points.size.max())
    if at(one, now) <= loss:
        low = max(float(one.points.size[one.points.size > 0].min()), 1.0)
        return low if at(one, low) <= loss else float(brentq(lambda size: at(one, size) - loss, low, now))
    if at(one, FAR * now) > loss:
        return float("inf")
    return float(brentq(lambda size: at(one, size) - loss, now, FAR * now))


def optimum(one: Fit, budget: float, per_label: float, per_parameter: float) -> tuple[float, float, float]:
    """The model and the labels that a budget is best spent on, by a law of both: N, D and their loss.

    What is above the floor is convex in N along the budget's line, so that there is one best point.

    Args:
        one: a joint or an additive fit.
        budget: Z.
        per_label: Z_data.
        per_parameter: Z_model: what training and encoding the corpus cost for each parameter.
    """

    def split(share: float) -> Points:
        size, model = (1 - share) * budget / per_label, share * budget / per_parameter
        return one.points.at(np.array([size]), np.array([model]))

    def loss(odds: float) -> float:
        return float(one.predict(split(1 / (1 + np.exp(-odds))))[0])

    best = float(minimize_scalar(loss, bounds=(-25, 25), method="bounded", options={"xatol": 1e-6}).x)
    place = split(1 / (1 + np.exp(-best)))
    return float(place.parameters[0]), float(place.size[0]), loss(best)


def _both(whole: Fit, wanted: Wanted) -> Row:
    if not (wanted.budget and wanted.per_label and wanted.per_parameter):
        return {"next": "a law of labels and models: give --budget, --per-label and --per-parameter"}
    model, size, loss = optimum(whole, wanted.budget, wanted.per_label, wanted.per_parameter)
    beyond = size > FAR * whole.points.size.max() or model > FAR * whole.points.parameters.max()
    return {"parameters": model, "bought": size, "reached": loss, "beyond": bool(beyond)}


def _value(loss: float, measure: str) -> float:
    return loss if measure in FALLING else 1 - loss


def _times(queries: float | None, price: float) -> float | None:
    return None if queries is None else queries * price


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def told(row: Row) -> str:
    """A plan, in a sentence or some."""
    head = f"{row['measure']}, {row['source']}, {row['labels']:,} labelled queries: "
    if "next" in row:
        return f"{head}{row['verdict']}: {row['next']}."
    if "parameters" in row:
        beyond = "; this lies beyond four times what was measured: not to be trusted" if row["beyond"] else ""
        best = f"{row['parameters']:.3g} parameters and {row['bought']:,.0f} labelled queries"
        return f"{head}the budget is best spent on {best}, loss {row['reached']:.4f}{beyond}."
    said = [f"the next {row['step']:g} takes {_span(row, 'queries_for_step')} queries more"]
    if row.get("money_for_step") is not None:
        said.append(f"which cost {_span(row, 'money_for_step')}")
    if "bought" in row:
        ends = f"{row['reached_low']:.4f} to {row['reached_high']:.4f}"
        beyond = ", which lies beyond four times what was measured: not to be trusted" if row["beyond"] else ""
        said.append(f"the budget buys {row['bought']:,.0f} and reaches {row['reached']:.4f} ({ends}){beyond}")
    if "queries_for_target" in row:
        money = row["money_for_target"]
        cost = "" if money is None else f" for {money:,.2f}"
        said.append(f"the target takes {_span(row, 'queries_for_target')} queries more{cost}")
    return head + "; ".join(said) + "."


def _span(row: Row, name: str) -> str:
    """A figure with its ends; what has none lies beyond what a law can say."""
    if row[name] is None:
        return f"more than {(FAR - 1) * row['labels']:,.0f}"
    high = row[f"{name}_high"]
    return f"{row[name]:,.0f} ({row[f'{name}_low'] or 0:,.0f} to {'?' if high is None else f'{high:,.0f}'})"
