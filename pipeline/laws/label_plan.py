"""Plan from an accepted law: gain and cost of more labels, with intervals, without extrapolating far.

Source: Scaling Laws for Dense Retrieval, Eq. 12: Z(N, D) = Z_data·D + Z_model·N, in money.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from darklode.pipeline.base.bootstrap import ENDS
from darklode.pipeline.base.types import Doubles, Row
from darklode.pipeline.laws import format
from darklode.pipeline.laws.costs import MeasuredCosts
from darklode.pipeline.laws.curve_fitting import Fit
from darklode.pipeline.laws.fit_stage import RESAMPLES
from darklode.pipeline.laws.format import Ends
from darklode.pipeline.laws.functional_forms import ADDITIVE, JOINT, PARAMETERS, STARTED, LawPoints
from darklode.pipeline.laws.points import ENTROPY, FALLING, LawKey
from darklode.pipeline.laws.prediction_intervals import refit_samples
from darklode.pipeline.laws.verdict import NO_LAW, LawResult

STEP = {ENTROPY: 0.1}
"""Step for which a gain is reported: 0.1 nats for entropy, 0.01 for every other measure."""

MAX_EXTRAPOLATION = 4.0
"""Maximum extrapolation, as a multiple of the largest measured size."""


@dataclass(frozen=True)
class PlanRequest:
    """Budget, target and prices of a plan.

    Attributes:
        budget: money to spend; None if not given.
        target: value of the measure to reach; None if not given.
        per_label: price of a labelled query; None: from the judge's tokens or the reviewers' minutes.
        per_parameter: price of a parameter (training, and encoding the corpus); None: from `per_gpu_hour`.
        per_hour: price of an hour of a reviewer; None if people label nothing.
        per_gpu_hour: price of an hour of the training machine; None if unknown.
    """

    budget: float | None = None
    target: float | None = None
    per_label: float | None = None
    per_parameter: float | None = None
    per_hour: float | None = None
    per_gpu_hour: float | None = None

    @property
    def identity(self) -> Row:
        """Everything that can change a plan."""
        return asdict(self)

    def with_prices(self, costs: MeasuredCosts) -> PlanRequest:
        """Fill missing prices from measured costs: reviewers' minutes if their hour has a price, else the judge's
        tokens.
        """
        label, model = self.per_label, self.per_parameter
        if label is None and self.per_hour is not None and costs.minutes is not None:
            label = self.per_hour * costs.minutes / 60
        if label is None:
            label = costs.per_query
        if model is None and self.per_gpu_hour is not None and costs.models:
            largest = max(costs.models, key=lambda model_cost: model_cost.parameters)
            model = self.per_gpu_hour * largest.hours / largest.parameters
        return replace(self, per_label=label, per_parameter=model)


def plan_laws(laws: Mapping[LawKey, LawResult], request: PlanRequest, seed: int) -> list[Row]:
    """Plan more labels for each law; returns rows of `law_plan`."""
    planned: list[Row] = []
    for key, result in laws.items():
        law = LawPlan(key, result, request)
        if result.full_fit is None:
            planned.append(
                law.row("label first", f"{result.verdict}: {first_step(result)}", amount=n_missing_labels(result))
            )
        elif result.full_fit.form in (JOINT, ADDITIVE):
            planned.append(law.plan_joint(result.full_fit))
        elif result.full_fit.form is PARAMETERS:
            planned.append(law.row("label first", format.MODELS_ONLY))
        else:
            planned += law.plan_labels(result.full_fit, seed)
    return planned


def n_missing_labels(result: LawResult) -> int:
    """Number of queries to label before planning is possible; 0 if labels do not help."""
    if result.verdict == NO_LAW or not len(result.points):
        return 0
    max_size = int(result.points.size.max())
    return int(max_size * 2 ** max(_n_missing_sizes(result), 1) - max_size)


def _n_missing_sizes(result: LawResult) -> int:
    n_sizes = int(np.unique(result.points.size[~result.plateau]).size)
    return STARTED.count + 2 - n_sizes


def first_step(result: LawResult) -> str:
    """What to label and train before planning is possible, as a sentence."""
    if result.verdict == NO_LAW:
        return format.labels_do_not_help(result.reason)
    max_size = int(result.points.size.max())
    return format.first_labels(result.reason, n_missing_labels(result), max_size, _n_missing_sizes(result))


@dataclass(frozen=True)
class LawPlan:
    """One law's result with a plan request."""

    key: LawKey
    result: LawResult
    request: PlanRequest

    @property
    def now(self) -> float:
        """Number of labelled queries at the largest size."""
        return float(self.result.points.size.max())

    def row(self, choice: str, sentence: str, **figures: float | str | None) -> Row:
        """A row of `law_plan`; missing values are null."""
        head = format.plan_head(self.key.measure, self.key.label, self.now)
        unit = {"unit": "queries"} if "amount" in figures else {}
        return self.key._asdict() | {"choice": choice, "said": f"{head}{sentence}."} | unit | figures

    def plan_labels(self, full_fit: Fit, seed: int) -> list[Row]:
        """Rows for a law of D: next step, what the budget buys, and what the target needs, each with its interval."""
        fits = [full_fit, *(refit for refit, _ in refit_samples(full_fit, RESAMPLES, seed))]
        step, now, price = STEP.get(self.key.measure, 0.01), self.now, self.request.per_label
        more = interval_ends(fits, lambda refit: size_for_loss(refit, loss_at(refit, now) - step) - now)
        sentence = format.next_step(step, self._cost_sentence(more))
        rows = [self.row("next step", sentence, gain=step, **self._with_price(more))]
        if self.request.budget is not None and price:
            rows.append(self._budget_row(fits, self.request.budget / price))
        if self.request.target is not None:
            loss = self.request.target if self.key.measure in FALLING else 1 - self.request.target
            takes = interval_ends(fits, lambda refit: max(size_for_loss(refit, loss) - now, 0.0))
            rows.append(self.row("target", format.target(self._cost_sentence(takes)), **self._with_price(takes)))
        return rows

    def _budget_row(self, fits: list[Fit], n_more: float) -> Row:
        now, sign = self.now, -1 if self.key.measure in FALLING else 1
        gain = interval_ends(fits, lambda fit: loss_at(fit, now) - loss_at(fit, now + n_more))
        expected_value = _value(loss_at(fits[0], now), self.key.measure) + sign * (gain[0] or 0)
        sentence = format.budget(n_more, expected_value, gain, is_near=n_more <= (MAX_EXTRAPOLATION - 1) * now)
        figures = dict(zip(("gain", "gain_low", "gain_high"), gain, strict=True))
        return self.row("budget", sentence, amount=n_more, money=self.request.budget, **figures)

    def plan_joint(self, full_fit: Fit) -> Row:
        """The row for a law of N and D: the optimal split of the budget between model size and labels."""
        request = self.request
        if not (request.budget and request.per_label and request.per_parameter):
            return self.row("model and labels", format.NO_PRICES)
        model, size, loss = optimum(full_fit, request.budget, request.per_label, request.per_parameter)
        is_near = _is_near(size, full_fit.points.size) and _is_near(model, full_fit.points.parameters)
        sentence = format.optimal_split(model, size, loss, is_near=is_near)
        return self.row("model and labels", sentence, amount=size, money=request.budget)

    def _with_price(self, amount: Ends) -> Row:
        names, price = ("", "_low", "_high"), self.request.per_label
        columns: Row = {f"amount{end}": value for end, value in zip(names, amount, strict=True)}
        if price:
            columns |= {f"money{end}": _times(value, price) for end, value in zip(names, amount, strict=True)}
        return columns

    def _cost_sentence(self, amount: Ends) -> str:
        price = self.request.per_label
        prices = [_times(end, price) for end in amount] if price else None
        return format.labels_and_price(amount, prices, (MAX_EXTRAPOLATION - 1) * self.now)


def interval_ends(fits: list[Fit], figure: Callable[[Fit], float]) -> Ends:
    """A figure of the first fit and its 95 % interval over the others."""
    values = [figure(fit) for fit in fits]
    with np.errstate(invalid="ignore"):
        low, high = np.percentile(values[1:], ENDS, method="nearest")
    return [_finite(values[0]), _finite(low), _finite(high)]


def loss_at(fit: Fit, size: float) -> float:
    """Predicted loss at a number of labelled queries."""
    return float(fit.predict(fit.points.with_sizes(np.array([size]), np.full(1, np.nan)))[0])


def size_for_loss(fit: Fit, loss: float) -> float:
    """Number of labelled queries needed for a loss; infinite beyond `MAX_EXTRAPOLATION` times the largest size."""
    now = float(fit.points.size.max())
    if loss_at(fit, now) <= loss:
        low = max(float(fit.points.size[fit.points.size > 0].min()), 1.0)
        return low if loss_at(fit, low) <= loss else float(brentq(lambda size: loss_at(fit, size) - loss, low, now))
    if loss_at(fit, MAX_EXTRAPOLATION * now) > loss:
        return float("inf")
    return float(brentq(lambda size: loss_at(fit, size) - loss, now, MAX_EXTRAPOLATION * now))


def optimum(fit: Fit, budget: float, per_label: float, per_parameter: float) -> tuple[float, float, float]:
    """Optimal model size and number of labels for a budget: N, D and their loss.

    The loss above the floor is convex in log N along the budget line, so a scalar minimizer finds the only optimum.

    Args:
        fit: a joint or an additive fit.
        budget: Z.
        per_label: Z_data.
        per_parameter: Z_model: cost of training and encoding the corpus per parameter.
    """

    def split(share: float) -> LawPoints:
        size, model = (1 - share) * budget / per_label, share * budget / per_parameter
        return fit.points.with_sizes(np.array([size]), np.array([model]))

    def loss(odds: float) -> float:
        return float(fit.predict(split(1 / (1 + np.exp(-odds))))[0])

    log_ratio = float(minimize_scalar(loss, bounds=(-25, 25), method="bounded", options={"xatol": 1e-6}).x)
    size_and_parameters = split(1 / (1 + np.exp(-log_ratio)))
    return float(size_and_parameters.parameters[0]), float(size_and_parameters.size[0]), loss(log_ratio)


def _is_near(value: float, measured: Doubles) -> bool:
    return bool(measured.min() / MAX_EXTRAPOLATION <= value <= MAX_EXTRAPOLATION * measured.max())


def _value(loss: float, measure: str) -> float:
    return loss if measure in FALLING else 1 - loss


def _times(queries: float | None, price: float) -> float | None:
    return None if queries is None else queries * price


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
