"""All sentences about laws and plans; the numeric modules pass values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Ends = Sequence[float | None]
"""A value and the ends of its interval; None beyond what the law supports."""

NO_EFFECT = "no effect is measurable: the loss at the largest fitted size is not lower than at the smallest"
CONSTANT_WINS = "a constant has the lower AICc: these points do not show a law"
MODELS_ONLY = "a law of models alone does not predict the effect of labels"
NO_PRICES = "a law of labels and models: give --budget, a price of labels, and --per-gpu-hour or --per-parameter"
BEYOND_MEASURED = "; this is beyond four times the largest measured size: not to be trusted"
OUTSIDE_MEASURED = "; this is beyond four times, or below a quarter, of what was measured: not to be trusted"


def zero_loss(n_zero: int, n: int) -> str:
    return f"the loss is 0 at {n_zero} of {n} points: it cannot fall further"


def missed_after_claim(error: float) -> str:
    return f"a law was claimed, but it misses the largest size by {error:.1%}"


def wide_interval(width: float, limit: float) -> str:
    return f"the 95 % interval at the held-out size is ±{width:.1%}; at most ±{limit:.0%} is needed"


def sizes_needed(n: int) -> str:
    return f"{n} sizes below the largest fitted one are needed to check it"


def missed_fitted(error: float, naive: float | None = None) -> str:
    """The check at the largest fitted size failed; `naive` is the error of the naive forecast, if that was better."""
    message = f"predicted from the smaller sizes, the largest fitted size is missed by {error:.1%}"
    return message if naive is None else f"{message}, and by {naive:.1%} by the forecast that nothing changes"


def too_few_points(requirement: tuple[str, int] | None, n_points: int, n_places: int, n_near_chance: int) -> str:
    """Why a law cannot be identified yet.

    Args:
        requirement: formula and number of constants of the form; None: no form can be fitted.
        n_points: points to fit.
        n_places: their distinct sizes and models.
        n_near_chance: points that were left out.
    """
    left_out = f"; {n_near_chance} points near chance are left out" if n_near_chance else ""
    if requirement is None:
        return f"no point is left to fit{left_out}"
    formula, count = requirement
    needed = f"{formula} needs {count + 3} points at {count + 1} places besides the largest"
    return f"{needed}; there are {n_points} at {n_places}{left_out}"


def degenerate(bounds: Sequence[str]) -> str:
    return f"its constants are degenerate and should not be quoted: {'; '.join(bounds)}"


def exponent_at_upper_bound(name: str, bound: float, scale: str, product: float) -> str:
    return f"{name} is at its bound {bound:g}: only {name}·{scale} = {product:.3g} is identifiable"


def exponent_at_lower_bound(name: str, bound: float) -> str:
    return f"{name} is at its bound {bound:g}: not distinguishable from a logarithm"


def offset_at_bound(value: float) -> str:
    return f"D0 is at its bound {value:.3g}: a straight line in D"


def first_labels(reason: str, n_labels: int, max_size: int, n_missing_sizes: int) -> str:
    """What to label and train before planning is possible."""
    if n_missing_sizes <= 0:
        return f"{reason}; label {n_labels:,} more queries, to size {2 * max_size:,}, and run again"
    sizes = ", ".join(f"{max_size * 2**more:,}" for more in range(1, n_missing_sizes + 1))
    return f"{reason}; label {n_labels:,} more queries, and train at sizes {sizes} first"


def labels_do_not_help(reason: str) -> str:
    return f"{reason}; no law predicts what more of these labels would bring"


def plan_head(measure: str, label: str, n_labelled: float) -> str:
    return f"{measure}, {label}, {n_labelled:,.0f} labelled queries: "


def next_step(step: float, cost: str) -> str:
    return f"the next {step:g} takes {cost}"


def target(cost: str) -> str:
    return f"the target takes {cost}"


def labels_and_price(amount: Ends, price: Ends | None, max_more: float) -> str:
    """A number of further queries and, if known, what they cost."""
    if amount[0] is None:
        return f"more than {max_more:,.0f} more queries"
    sentence = f"{format_span(amount)} more queries"
    return sentence if price is None else f"{sentence}, which cost {format_span(price, 2)}"


def budget(more: float, value: float, gain: Ends, *, is_near: bool) -> str:
    gain_text = f"a gain of {_signed(gain[0])} ({_signed(gain[1])} to {_signed(gain[2])})"
    sentence = f"the budget buys {more:,.0f} queries and reaches {value:.4f}, {gain_text}"
    return sentence if is_near else sentence + BEYOND_MEASURED


def optimal_split(parameters: float, size: float, loss: float, *, is_near: bool) -> str:
    split = f"{parameters:.3g} parameters and {size:,.0f} labelled queries, loss {loss:.4f}"
    sentence = f"the budget is best spent on {split}"
    return sentence if is_near else sentence + OUTSIDE_MEASURED


def format_span(amount: Ends, digits: int = 0) -> str:
    """A figure with its interval."""
    low, high = (("?" if value is None else f"{value:,.{digits}f}") for value in amount[1:])
    return f"{amount[0]:,.{digits}f} ({low} to {high})"


def _signed(value: float | None) -> str:
    return "?" if value is None else f"{value:+.4f}"


def measured_gain(gain: tuple[float, float, float], measure: str) -> str:
    interval = "" if np.isnan(gain[1]) else f" ({gain[1]:+.4f} to {gain[2]:+.4f})"
    return f"{measure} is better by {gain[0]:+.4f}{interval}"


def other_source(label: str, own: str, size: int, gain: str, equivalent: str) -> str:
    return f"{label} instead of {own} at {size:,} queries: {gain}{equivalent}."


NO_LABELS_DO_AS_MUCH = "; no label at all does as much"


def equivalent_labels(n_labels: float, max_labels: float) -> str:
    """How many of the run's own labels reach the same."""
    if np.isfinite(n_labels):
        return f"; as much as {n_labels:,.0f} labels"
    return f"; as much as more than {max_labels:,.0f} labels"


def larger_model(source: str, sizes: tuple[float, float], n_queries: int, gain: str, cost: float | None) -> str:
    models = f"{sizes[1]:,.0f} parameters instead of {sizes[0]:,.0f}"
    price = "" if cost is None else f"; training once and encoding the corpus cost {cost:,.2f} more"
    return f"{source}: {models} at {n_queries:,} queries: {gain}{price}."


def deeper_judging(row: dict[str, Any], last: dict[str, Any], cost: float | None, calls_per_positive: float) -> str:
    """What the next doubling of the pool depth costs, and how many positives it finds at most.

    Args:
        row: row of `depth_costs` about the ranks to judge.
        last: row of `depth_costs` about the deepest judged ranks.
        cost: price of the calls; None if unknown.
        calls_per_positive: calls per positive over all judged ranks.
    """
    price = "" if cost is None else f" for {cost:,.2f}"
    calls = f"judging ranks {row['from_rank']} to {row['to_rank']}, too, takes {row['calls']:,} calls{price}"
    comparison = f"a positive takes {calls_per_positive:.1f} calls at a new query"
    caveat = "Laws count queries; the effect of more positives of the same queries is not known."
    return f"{calls}{_positives_bound(row, last)}; {comparison}. {caveat}"


def _positives_bound(row: dict[str, Any], last: dict[str, Any]) -> str:
    """The most positives that judging `row` can find, if they are as dense as in `last`, as a sentence part."""
    ranks = f"ranks {last['from_rank']} to {last['to_rank']}"
    calls_per_positive = last["calls_per_positive"]
    if calls_per_positive is None:
        return f": the {last['calls']:,} calls at {ranks} found no positive"
    high = "?" if last["high"] is None else f"{last['high']:.1f}"
    measured = f"a positive took {calls_per_positive:.1f} calls ({last['low']:.1f} to {high}) at {ranks}"
    n_positives = row["calls"] / calls_per_positive
    return f" and finds at most {n_positives:,.0f} positives, if they are no denser than before: {measured}"
