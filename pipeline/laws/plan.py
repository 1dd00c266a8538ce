"""What more labels would bring, and for what money: read off a law that stands, with intervals, never far beyond it.

Source: Scaling Laws for Dense Retrieval, Eq. 12: Z(N, D) = Z_data·D + Z_model·N, dollars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from darklode.pipeline.base.bootstrap import ENDS
from darklode.pipeline.laws.bands import refits
from darklode.pipeline.laws.costs import Spent
from darklode.pipeline.laws.fit import RESAMPLES
from darklode.pipeline.laws.fitting import Fit
from darklode.pipeline.laws.forms import ADDITIVE, JOINT, PARAMETERS, STARTED, Floats, Points
from darklode.pipeline.laws.points import ENTROPY, FALLING, LawKey
from darklode.pipeline.laws.verdict import NO_LAW, Found

STEP = {ENTROPY: 0.1}
"""What a gain is told for: .1 nats, and .01 of every other measure."""

FAR = 4.0
"""Times the largest size: beyond, a law says nothing."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What is asked.

    Attributes:
        budget: money to spend; None: not said.
        target: a value of the measure to reach; None: not said.
        per_label: price of a labelled query; None: of the judge's tokens, or of people's minutes.
        per_parameter: price of a parameter, its training and the corpus' encoding; None: by `per_gpu_hour`.
        per_hour: price of a person's hour; None: people label nothing.
        per_gpu_hour: price of an hour of the machine that trains and encodes; None: nobody knows.
    """

    budget: float | None = None
    target: float | None = None
    per_label: float | None = None
    per_parameter: float | None = None
    per_hour: float | None = None
    per_gpu_hour: float | None = None

    @property
    def identity(self) -> Row:
        """All that can change a plan."""
        return asdict(self)

    def priced(self, spent: Spent) -> Wanted:
        """With the prices that follow from what was spent: people's where their hour has one, else the judge's."""
        label, model = self.per_label, self.per_parameter
        if label is None and self.per_hour is not None and spent.minutes is not None:
            label = self.per_hour * spent.minutes / 60
        if label is None:
            label = spent.per_query
        if model is None and self.per_gpu_hour is not None and spent.models:
            largest = max(spent.models, key=lambda one: one.parameters)
            model = self.per_gpu_hour * largest.hours / largest.parameters
        return replace(self, per_label=label, per_parameter=model)


def plans(laws: Mapping[LawKey, Found], wanted: Wanted, seed: int) -> list[Row]:
    """What more labels bring: rows of `law_plan`.

    Args:
        laws: what was found of each.
        wanted: budget, target and prices.
        seed: of the resamples.
    """
    planned: list[Row] = []
    for key, found in laws.items():
        law = Law(key, found, wanted)
        if found.whole is None:
            planned.append(law.row("label first", f"{found.verdict}: {first(found)}", amount=lacking(found)))
        elif found.whole.form in (JOINT, ADDITIVE):
            planned.append(law.both(found.whole))
        elif found.whole.form is PARAMETERS:
            planned.append(law.row("label first", "a law of models alone says nothing of labels"))
        else:
            planned += law.more(found.whole, seed)
    return planned


def lacking(found: Found) -> int:
    """Labelled queries to add before anything can be planned; 0 where labels do not help."""
    if found.verdict == NO_LAW or not len(found.points):
        return 0
    most = int(found.points.size.max())
    return int(most * 2 ** max(_sizes_lacking(found), 1) - most)


def _sizes_lacking(found: Found) -> int:
    there = int(np.unique(found.points.size[~found.plateau]).size)
    return STARTED.count + 2 - there


def first(found: Found) -> str:
    """What has to be labelled and trained before anything can be planned; nothing, where labels do not help."""
    if found.verdict == NO_LAW:
        return f"{found.reason}; no law says what more of these labels would bring"
    most, label = int(found.points.size.max()), lacking(found)
    if _sizes_lacking(found) <= 0:
        return f"{found.reason}; label {label:,} queries more, to size {2 * most:,}, and run again"
    sizes = ", ".join(f"{most * 2**more:,}" for more in range(1, _sizes_lacking(found) + 1))
    return f"{found.reason}; label {label:,} queries more, and train at sizes {sizes} first"


@dataclass(frozen=True)
class Law:
    """What was found of one law, and what is asked of it."""

    key: LawKey
    found: Found
    wanted: Wanted

    @property
    def now(self) -> float:
        """Labelled queries of the largest size."""
        return float(self.found.points.size.max())

    def row(self, choice: str, said: str, **figures: float | str | None) -> Row:
        """A row of `law_plan`; what is not given is null."""
        head = f"{self.key.measure}, {self.key.label}, {self.now:,.0f} labelled queries: "
        unit = {"unit": "queries"} if "amount" in figures else {}
        return self.key._asdict() | {"choice": choice, "said": f"{head}{said}."} | unit | figures

    def more(self, whole: Fit, seed: int) -> list[Row]:
        """A law of D: the next step, what a budget buys, and what a target takes; each with its interval."""
        every = [whole, *(one for one, _ in refits(whole, RESAMPLES, seed))]
        step, now, price = STEP.get(self.key.measure, 0.01), self.now, self.wanted.per_label
        more = ends(every, lambda one: needed(one, at(one, now) - step) - now)
        rows = [
            self.row("next step", f"the next {step:g} takes {self._costing(more)}", gain=step, **self._priced(more))
        ]
        if self.wanted.budget is not None and price:
            rows.append(self._bought(every, self.wanted.budget / price))
        if self.wanted.target is not None:
            loss = self.wanted.target if self.key.measure in FALLING else 1 - self.wanted.target
            takes = ends(every, lambda one: max(needed(one, loss) - now, 0.0))
            rows.append(self.row("target", f"the target takes {self._costing(takes)}", **self._priced(takes)))
        return rows

    def _bought(self, every: list[Fit], more: float) -> Row:
        now, sign = self.now, -1 if self.key.measure in FALLING else 1
        gain = ends(every, lambda one: at(one, now) - at(one, now + more))
        reached = _value(at(every[0], now), self.key.measure) + sign * (gain[0] or 0)
        between = f"a gain of {_signed(gain[0])} ({_signed(gain[1])} to {_signed(gain[2])})"
        said = f"the budget buys {more:,.0f} queries and reaches {reached:.4f}, {between}"
        figures = dict(zip(("gain", "gain_low", "gain_high"), gain, strict=True))
        return self.row(
            "budget",
            said + (BEYOND if more > (FAR - 1) * now else ""),
            amount=more,
            money=self.wanted.budget,
            **figures,
        )

    def both(self, whole: Fit) -> Row:
        """A law of N and D: the model and the labels that the money is best spent on."""
        wanted = self.wanted
        if not (wanted.budget and wanted.per_label and wanted.per_parameter):
            said = "a law of labels and models: give --budget, a price of labels, and --per-gpu-hour or --per-parameter"
            return self.row("model and labels", said)
        model, size, loss = optimum(whole, wanted.budget, wanted.per_label, wanted.per_parameter)
        near = _near(size, whole.points.size) and _near(model, whole.points.parameters)
        best = f"the budget is best spent on {model:.3g} parameters and {size:,.0f} labelled queries, loss {loss:.4f}"
        return self.row("model and labels", best + ("" if near else OUTSIDE), amount=size, money=wanted.budget)

    def _priced(self, amount: Ends) -> Row:
        names, price = ("", "_low", "_high"), self.wanted.per_label
        found: Row = {f"amount{end}": value for end, value in zip(names, amount, strict=True)}
        if price:
            found |= {f"money{end}": _times(value, price) for end, value in zip(names, amount, strict=True)}
        return found

    def _costing(self, amount: Ends) -> str:
        """So many queries, and their price where there is one."""
        if amount[0] is None:
            return f"more than {(FAR - 1) * self.now:,.0f} queries more"
        said = f"{span(amount)} queries more"
        price = self.wanted.per_label
        return said if not price else f"{said}, which cost {span([_times(one, price) for one in amount], 2)}"


BEYOND = "; this lies beyond four times what was measured: not to be trusted"

OUTSIDE = "; this lies beyond four times, or below a quarter, of what was measured: not to be trusted"

Ends = Sequence[float | None]
"""A figure, and the ends of its interval; none where it is more than a law can say."""


def ends(every: list[Fit], figure: Callable[[Fit], float]) -> Ends:
    """A figure of the first fit, and its 95 % interval over the others."""
    values = [figure(one) for one in every]
    with np.errstate(invalid="ignore"):
        low, high = np.percentile(values[1:], ENDS, method="nearest")
    return [_finite(values[0]), _finite(low), _finite(high)]


def span(amount: Ends, digits: int = 0) -> str:
    """A figure with its ends, in words."""
    low, high = (("?" if one is None else f"{one:,.{digits}f}") for one in amount[1:])
    return f"{amount[0]:,.{digits}f} ({low} to {high})"


def _signed(value: float | None) -> str:
    return "?" if value is None else f"{value:+.4f}"


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


def _near(value: float, measured: Floats) -> bool:
    return bool(measured.min() / FAR <= value <= FAR * measured.max())


def _value(loss: float, measure: str) -> float:
    return loss if measure in FALLING else 1 - loss


def _times(queries: float | None, price: float) -> float | None:
    return None if queries is None else queries * price


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
