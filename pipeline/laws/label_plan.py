"""Plan more labels from an accepted law: their gain and cost, with 95 % intervals, without extrapolating far.

A law predicts the loss at D labelled queries, at N model parameters, or at both; see `functional_forms`. The budget Z
pays for both: Z(N, D) = Z_data·D + Z_model·N (Scaling Laws for Dense Retrieval, Eq. 12, in money).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from darklode.pipeline.base.bootstrap import INTERVAL_PERCENTILES
from darklode.pipeline.base.finite import finite_or_none
from darklode.pipeline.base.types import Doubles, Row
from darklode.pipeline.laws import format
from darklode.pipeline.laws.costs import MeasuredCosts
from darklode.pipeline.laws.curve_fitting import Fit
from darklode.pipeline.laws.fit_stage import RESAMPLES
from darklode.pipeline.laws.format import Ends
from darklode.pipeline.laws.functional_forms import ADDITIVE, JOINT, PARAMETERS, SIZE_WITH_OFFSET, LawPoints
from darklode.pipeline.laws.points import ENTROPY_MEASURE, LOWER_IS_BETTER, LawKey
from darklode.pipeline.laws.prediction_intervals import refit_samples
from darklode.pipeline.laws.verdict import NO_LAW, LawResult

STEP_GAIN = {ENTROPY_MEASURE: 0.1}
"""Gain whose cost is planned, by measure: 0.1 nats of entropy; 0.01 of any other measure."""

MAX_EXTRAPOLATION = 4.0
"""Maximum extrapolation, as a multiple of the largest measured size. Beyond it, a plan gives no number or says
that it is not to be trusted.
"""


@dataclass(frozen=True)
class PlanRequest:
    """Budget, target and prices of a plan.

    Attributes:
        budget: money to spend; None if not given.
        target: value of the measure to reach; None if not given.
        per_label: price of a labelled query; None to compute it from the reviewers' minutes or the judge's tokens.
        per_parameter: price of a model parameter (training, and encoding the corpus); None to compute it from
            `per_gpu_hour`.
        per_hour: price of a reviewer's hour; None if people label nothing.
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
        """All fields, because each can change a plan; part of the stage's fingerprint."""
        return asdict(self)

    def with_prices(self, costs: MeasuredCosts) -> PlanRequest:
        """The request with missing prices computed from measured costs; prices that cannot be computed stay None.

        A label's price comes from the reviewers' minutes if their hour has a price, otherwise from the judge's tokens.
        A parameter's price comes from the training and encoding time of the largest encoder.
        """
        label_price = self.per_label
        if label_price is None and self.per_hour is not None and costs.minutes is not None:
            label_price = self.per_hour * costs.minutes / 60
        if label_price is None:
            label_price = costs.per_query
        parameter_price = self.per_parameter
        if parameter_price is None and self.per_gpu_hour is not None and costs.models:
            largest_model = max(costs.models, key=lambda model_cost: model_cost.parameters)
            parameter_price = self.per_gpu_hour * largest_model.hours / largest_model.parameters
        return replace(self, per_label=label_price, per_parameter=parameter_price)


def plan_laws(laws: Mapping[LawKey, LawResult], request: PlanRequest, seed: int) -> list[Row]:
    """Plan the next labels for each law.

    Args:
        laws: the recorded result of each law, accepted or not.
        request: budget, target and prices.
        seed: seed of the refits behind the intervals.

    Returns:
        Rows of `law_plan`: one for a law that is not accepted or has model parameters, up to three for a law of labels.
    """
    plan_rows: list[Row] = []
    for key, result in laws.items():
        law = LawPlan(key, result, request)
        if result.full_fit is None:
            sentence = f"{result.verdict}: {first_step(result)}"
            plan_rows.append(law.row("label first", sentence, amount=n_missing_labels(result)))
        elif result.full_fit.form in (JOINT, ADDITIVE):
            plan_rows.append(law.plan_joint(result.full_fit))
        elif result.full_fit.form is PARAMETERS:
            plan_rows.append(law.row("label first", format.MODELS_ONLY))
        else:
            plan_rows += law.plan_labels(result.full_fit, seed)
    return plan_rows


def n_missing_labels(result: LawResult) -> int:
    """Number of queries to label before a law can be fitted and tested; 0 if labels do not help.

    Each missing size doubles the largest one.
    """
    if result.verdict == NO_LAW or not len(result.points):
        return 0
    max_size = int(result.points.size.max())
    return int(max_size * 2 ** max(_n_missing_sizes(result), 1) - max_size)


def _n_missing_sizes(result: LawResult) -> int:
    """Number of sizes that a verdict lacks; 0 or less if it has enough.

    A verdict needs one size more than `SIZE_WITH_OFFSET` has constants, and another one to hold out.
    """
    n_sizes = int(np.unique(result.points.size[~result.plateau]).size)
    return SIZE_WITH_OFFSET.count + 2 - n_sizes


def first_step(result: LawResult) -> str:
    """Sentence that says what to label and train before a law can be fitted and tested."""
    if result.verdict == NO_LAW:
        return format.labels_do_not_help(result.reason)
    max_size = int(result.points.size.max())
    return format.first_labels(result.reason, n_missing_labels(result), max_size, _n_missing_sizes(result))


@dataclass(frozen=True)
class LawPlan:
    """Plans for one law.

    Attributes:
        key: measure, label source and encoder of the law.
        result: the verdict on the law's points, and its fit if it was accepted.
        request: budget, target and prices.
    """

    key: LawKey
    result: LawResult
    request: PlanRequest

    @property
    def now(self) -> float:
        """Number of labelled queries at the largest measured size: where a plan starts."""
        return float(self.result.points.size.max())

    def row(self, choice: str, sentence: str, **figures: float | str | None) -> Row:
        """A row of `law_plan`.

        Args:
            choice: kind of the row, for example "budget".
            sentence: what to do, without the leading measure and the final period.
            figures: further columns; columns that are not given become null.
        """
        prefix = format.plan_head(self.key.measure, self.key.label, self.now)
        unit = {"unit": "queries"} if "amount" in figures else {}
        return self.key._asdict() | {"option": choice, "advice": f"{prefix}{sentence}."} | unit | figures

    def plan_labels(self, full_fit: Fit, seed: int) -> list[Row]:
        """Rows for a law of D: the cost of the next step, what the budget buys, and the cost of the target.

        The last two need a budget with a price of labels, and a target. Each figure has a 95 % interval over
        `RESAMPLES` refits, which depend on `seed`.
        """
        fits = [full_fit, *(refit for refit, _ in refit_samples(full_fit, RESAMPLES, seed))]
        gain = STEP_GAIN.get(self.key.measure, 0.01)
        n_for_step = interval_ends(fits, lambda refit: size_for_loss(refit, loss_at(refit, self.now) - gain) - self.now)
        sentence = format.next_step(gain, self._cost_sentence(n_for_step))
        rows = [self.row("next step", sentence, gain=gain, **self._amount_and_money(n_for_step))]
        if self.request.budget is not None and self.request.per_label:
            rows.append(self._budget_row(fits, self.request.budget / self.request.per_label))
        if self.request.target is not None:
            target_loss = self.request.target if self.key.measure in LOWER_IS_BETTER else 1 - self.request.target
            n_for_target = interval_ends(fits, lambda refit: max(size_for_loss(refit, target_loss) - self.now, 0.0))
            sentence = format.target(self._cost_sentence(n_for_target))
            rows.append(self.row("target", sentence, **self._amount_and_money(n_for_target)))
        return rows

    def _budget_row(self, fits: list[Fit], n_more: float) -> Row:
        """The row for the gain of `n_more` further queries; `fits` are the law's own fit, then the refits."""
        gain = interval_ends(fits, lambda fit: loss_at(fit, self.now) - loss_at(fit, self.now + n_more))
        gain_sign = -1 if self.key.measure in LOWER_IS_BETTER else 1
        expected_value = _value(loss_at(fits[0], self.now), self.key.measure) + gain_sign * (gain[0] or 0)
        is_near = n_more <= (MAX_EXTRAPOLATION - 1) * self.now
        sentence = format.budget(n_more, expected_value, gain, is_near=is_near)
        figures = dict(zip(("gain", "gain_low", "gain_high"), gain, strict=True))
        return self.row("budget", sentence, amount=n_more, money=self.request.budget, **figures)

    def plan_joint(self, full_fit: Fit) -> Row:
        """The row for a law of N and D: the optimal split of the budget between model size and labels.

        Without a budget or a price, the row only says what is missing.
        """
        request = self.request
        if not (request.budget and request.per_label and request.per_parameter):
            return self.row("model and labels", format.NO_PRICES)
        parameters, size, loss = optimum(full_fit, request.budget, request.per_label, request.per_parameter)
        is_near = _is_near(size, full_fit.points.size) and _is_near(parameters, full_fit.points.parameters)
        sentence = format.optimal_split(parameters, size, loss, is_near=is_near)
        return self.row("model and labels", sentence, amount=size, money=request.budget)

    def _amount_and_money(self, amount: Ends) -> Row:
        """Columns of `law_plan` for a number of further queries and, if labels have a price, what they cost."""
        suffixes = ("", "_low", "_high")
        columns: Row = {f"amount{suffix}": n_queries for suffix, n_queries in zip(suffixes, amount, strict=True)}
        price = self.request.per_label
        if price:
            columns |= {
                f"money{suffix}": _times(n_queries, price) for suffix, n_queries in zip(suffixes, amount, strict=True)
            }
        return columns

    def _cost_sentence(self, amount: Ends) -> str:
        """A number of further queries and, if labels have a price, what they cost, for people."""
        price = self.request.per_label
        money = [_times(n_queries, price) for n_queries in amount] if price else None
        return format.labels_and_price(amount, money, (MAX_EXTRAPOLATION - 1) * self.now)


def interval_ends(fits: list[Fit], figure: Callable[[Fit], float]) -> Ends:
    """A figure of the first fit and its 95 % interval over the others: value, lower end, upper end.

    Infinite ends become None: the law does not support a number there.
    """
    values = [figure(fit) for fit in fits]
    # "nearest" returns one of the values: interpolating towards an infinite one gives infinity or NaN.
    with np.errstate(invalid="ignore"):
        low, high = np.percentile(values[1:], INTERVAL_PERCENTILES, method="nearest")
    return [finite_or_none(values[0]), finite_or_none(low), finite_or_none(high)]


def loss_at(fit: Fit, size: float) -> float:
    """Loss that a law of D predicts at a number of labelled queries."""
    return float(fit.predict(fit.points.with_sizes(np.array([size]), np.full(1, np.nan)))[0])


def size_for_loss(fit: Fit, loss: float) -> float:
    """Number of labelled queries at which a law of D predicts a loss.

    Infinite beyond `MAX_EXTRAPOLATION` times the largest size; at least the smallest measured size above 0.
    """
    max_size = float(fit.points.size.max())
    if loss_at(fit, max_size) <= loss:
        min_size = max(float(fit.points.size[fit.points.size > 0].min()), 1.0)
        if loss_at(fit, min_size) <= loss:
            return min_size
        return float(brentq(lambda size: loss_at(fit, size) - loss, min_size, max_size))
    if loss_at(fit, MAX_EXTRAPOLATION * max_size) > loss:
        return float("inf")
    return float(brentq(lambda size: loss_at(fit, size) - loss, max_size, MAX_EXTRAPOLATION * max_size))


def optimum(fit: Fit, budget: float, per_label: float, per_parameter: float) -> tuple[float, float, float]:
    """Optimal model size and number of labels for a budget: N, D and the loss that the law predicts there.

    The loss above the floor is convex in log N along the budget line, so a scalar minimizer finds the only optimum.

    Args:
        fit: a joint or an additive fit.
        budget: Z, money to spend on labels and the model together.
        per_label: Z_data, the price of a labelled query.
        per_parameter: Z_model, the price of training one parameter and of encoding the corpus with it.
    """

    def split_budget(model_share: float) -> LawPoints:
        size = (1 - model_share) * budget / per_label
        parameters = model_share * budget / per_parameter
        return fit.points.with_sizes(np.array([size]), np.array([parameters]))

    def sigmoid(logit: float) -> float:
        return float(1 / (1 + np.exp(-logit)))

    def loss(logit: float) -> float:
        return float(fit.predict(split_budget(sigmoid(logit)))[0])

    # The search is over the logit of the model's share, which resolves shares near 0 and near 1 equally well. A
    # logit of 25 leaves 1e-11 of the budget to the other side.
    best_logit = float(minimize_scalar(loss, bounds=(-25, 25), method="bounded", options={"xatol": 1e-6}).x)
    best_split = split_budget(sigmoid(best_logit))
    return float(best_split.parameters[0]), float(best_split.size[0]), loss(best_logit)


def _is_near(value: float, measured: Doubles) -> bool:
    """Whether a value is within `MAX_EXTRAPOLATION` times of the measured range, below and above."""
    return bool(measured.min() / MAX_EXTRAPOLATION <= value <= MAX_EXTRAPOLATION * measured.max())


def _value(loss: float, measure: str) -> float:
    """The measure's value at a loss: the inverse of `points.losses`."""
    return loss if measure in LOWER_IS_BETTER else 1 - loss


def _times(n_queries: float | None, price: float) -> float | None:
    """What a number of queries costs; None if the number is."""
    return None if n_queries is None else n_queries * price
