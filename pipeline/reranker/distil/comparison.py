"""A distilled judge beside its teacher: calibration, agreement with intervals, and the bands of a cascade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.agreement import (
    cohens_kappa,
    confusion,
    confusion_by_query,
    folds,
    has_enough_labels,
    kappas,
)
from darklode.pipeline.base.finite import finite_or_none
from darklode.pipeline.base.types import Doubles, Ints, Mask
from darklode.pipeline.judge.cascade import CascadeBand
from darklode.pipeline.judge.logistic import Logistic
from darklode.pipeline.judge.threshold import fit_smooth_threshold

CERTAINTIES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.84, 0.88, 0.9, 0.92, 0.94, 0.96, 0.97, 0.98, 0.99, 0.995, 1.0)
"""Certainties from which on the small judge answers; at 1 the teacher judges all pairs."""

AGREEMENTS = (0.6, 0.7, 0.8, 0.9, 0.95)
"""Values of `judge.agreement` that card and command show."""

N_RESAMPLES = 2000
"""Bootstrap resamples of queries."""


@dataclass(frozen=True)
class LogitCalibration:
    """How scores become probabilities and labels.

    Attributes:
        slope: factor of the logit, above 0.
        intercept: added to it.
        threshold: minimum probability of a relevant pair.
    """

    slope: float
    intercept: float
    threshold: float

    @classmethod
    def fit(cls, logit: Doubles, label: Mask) -> LogitCalibration | None:
        """Platt scaling (1999), and the threshold with the best expected kappa; None if labels do not rise with scores.

        Args:
            logit: shape (n_pairs,).
            label: same shape.
        """
        if len(np.unique(label)) < 2:
            return None
        model = Logistic.fit(logit[:, None], label)
        if model.weights[0] <= 0:
            return None
        probability = model.probability(logit[:, None]).astype(np.float32)
        threshold = fit_smooth_threshold(probability, label)
        return cls(model.weights[0], model.intercept, threshold[0] if threshold else 0.5)

    def probability(self, logit: Doubles) -> Doubles:
        """Calibrated probabilities, same shape as the logits."""
        return np.asarray(1 / (1 + np.exp(-(self.slope * logit + self.intercept))))

    def logit_at(self, probability: float) -> float:
        """The logit with this probability; infinite for 0 and 1."""
        with np.errstate(divide="ignore"):
            return float((np.log(probability) - np.log1p(-np.float64(probability)) - self.intercept) / self.slope)


@dataclass(frozen=True)
class HeldOutPairs:
    """Pairs of queries that training did not see; all arrays of shape (n_pairs,).

    Attributes:
        query: number of each pair's query, from 0.
        logit: the model's scores.
        teacher: the teacher's labels.
        people: people's labels, NaN for unlabelled pairs.
        weight: number of pairs that each of people's labels stands for.
    """

    query: Ints
    logit: Doubles
    teacher: Mask
    people: Doubles
    weight: Doubles

    @property
    def is_labelled(self) -> Mask:
        """Pairs with a label of people."""
        return np.isfinite(self.people)

    @property
    def fits_people(self) -> bool:
        """Whether there are enough of people's labels to calibrate on them."""
        return has_enough_labels(self.people[self.is_labelled] > 0)

    def calibration(self, rows: Mask, *, on_people: bool) -> LogitCalibration | None:
        """Fit to some of the pairs, to people's labels or to the teacher's."""
        label = self.people > 0 if on_people else self.teacher
        rows = rows & self.is_labelled if on_people else rows
        return LogitCalibration.fit(self.logit[rows], label[rows])

    def cross_fitted(self, seed: int, *, on_people: bool) -> tuple[Doubles, Mask]:
        """Probability and label of each pair by a calibration on other queries; 0 where none can be fitted."""
        fold = folds(self.query, seed)
        probability, relevant = np.zeros(len(fold)), np.zeros(len(fold), bool)
        for number in np.unique(fold):
            held_out = fold == number
            fitted = self.calibration(~held_out, on_people=on_people)
            if fitted:
                probability[held_out] = fitted.probability(self.logit[held_out])
                relevant[held_out] = probability[held_out] >= fitted.threshold
        return probability, relevant


@dataclass(frozen=True)
class KappaInterval:
    """A figure with its 95 % bootstrap interval over queries; None if undefined."""

    value: float | None
    low: float | None
    high: float | None


class QueryBootstrap:
    """Resamples whole queries, the same ones for every figure, so that differences are paired.

    Args:
        query: number of each pair's query, from 0, shape (n_pairs,).
        seed: seed of the resamples.
    """

    def __init__(self, query: Ints, seed: int) -> None:
        self._query = np.unique(query, return_inverse=True)[1]
        n = int(self._query.max(initial=-1)) + 1
        self._counts = np.random.default_rng([seed, 5]).multinomial(n, np.full(n, 1 / n), N_RESAMPLES)

    def kappas(self, predicted: Mask, label: Mask, weight: Doubles | None = None) -> Doubles:
        """Cohen's kappa, first of all pairs, then of each resample, shape (1 + N_RESAMPLES,)."""
        n = self._counts.shape[1]
        counts = np.concatenate([np.ones((1, n)), self._counts])
        return kappas(counts @ confusion_by_query(self._query, predicted, label, weight, n))[:, 0]


def interval(values: Doubles) -> KappaInterval:
    """The first value, and the percentiles of the others, undefined ones left out."""
    resampled = values[1:][np.isfinite(values[1:])]
    if not np.isfinite(values[0]) or not len(resampled):
        return KappaInterval(finite_or_none(values[0]), None, None)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return KappaInterval(float(values[0]), float(low), float(high))


@dataclass(frozen=True)
class DistilledComparison:
    """Agreement of a distilled judge and of its teacher.

    Attributes:
        teacher_kappa: distilled judge with its teacher, on all held-out pairs.
        agreement: share of these pairs with the same label.
        people_kappas: with people, of the teacher and of the distilled judge; empty without labels.
        difference: of the latter from the former, paired; None without labels.
        labels: number of pairs with a label of people.
    """

    teacher_kappa: KappaInterval
    agreement: float
    people_kappas: tuple[KappaInterval, ...]
    difference: KappaInterval | None
    labels: int


def compare(pairs: HeldOutPairs, relevant: Mask, seed: int) -> DistilledComparison:
    """Compare a distilled judge's labels with the teacher's and people's.

    Args:
        pairs: held-out pairs.
        relevant: the distilled judge's labels, shape (n_pairs,).
        seed: seed of the bootstrap.
    """
    with_teacher = interval(QueryBootstrap(pairs.query, seed).kappas(relevant, pairs.teacher))
    agreement, labelled = float((relevant == pairs.teacher).mean()), pairs.is_labelled
    if not labelled.any():
        return DistilledComparison(with_teacher, agreement, (), None, 0)
    bootstrap, people = QueryBootstrap(pairs.query[labelled], seed), pairs.people[labelled] > 0
    teacher, student = (
        bootstrap.kappas(labels[labelled], people, pairs.weight[labelled]) for labels in (pairs.teacher, relevant)
    )
    return DistilledComparison(
        with_teacher,
        agreement,
        (interval(teacher), interval(student)),
        interval(student - teacher),
        int(labelled.sum()),
    )


def cascade_bands(pairs: HeldOutPairs, final: LogitCalibration, seed: int) -> list[dict[str, Any]]:
    """Rows of `cascade_bands` without the tenant: what is reached if the small judge answers from each certainty on.

    Certainty is the probability of the teacher's label, calibrated on other queries; `low` and `high` are the
    probabilities of the final calibration at the same logits.

    Args:
        pairs: held-out pairs.
        final: calibration of the saved model.
        seed: assigns queries to folds.
    """
    on_teacher = pairs.calibration(np.ones(len(pairs.query), bool), on_people=False)
    probability, _ = pairs.cross_fitted(seed, on_people=False)
    fold = folds(pairs.query, seed)
    levels: Sequence[float] = CERTAINTIES if on_teacher else (1.0,)
    rows = []
    for certainty in levels:
        is_sure = (probability <= 1 - certainty) | (probability >= certainty)
        is_sure &= certainty < 1
        labels = np.where(is_sure, probability >= 0.5, pairs.teacher)
        low = high = None
        if on_teacher and certainty < 1:
            edges = np.array([on_teacher.logit_at(1 - certainty), on_teacher.logit_at(certainty)])
            low, high = final.probability(edges).tolist()
        row = {"certainty": certainty, "low": low, "high": high, "teacher_share": float(1 - is_sure.mean())}
        counts = confusion_by_query(fold, labels, pairs.teacher)
        n_teacher = np.bincount(fold, ~is_sure, len(counts))
        fold_counts = np.column_stack([counts, n_teacher]).astype(np.int64).tolist()
        rows.append(row | _agreement(pairs, labels) | {"fold_counts": fold_counts})
    return rows


def cascade_choices(bands: Sequence[Mapping[str, Any]]) -> pa.Table:
    """What `judge.agreement` leads to: share of pairs for the teacher, and kappa with it.

    Both are measured on other test queries than those that chose the band (cross-fitting).

    Args:
        bands: rows of `cascade_bands`, by certainty.
    """
    choices = [CascadeBand.choose(bands, agreement) for agreement in AGREEMENTS]
    columns = {"low": [band.low for band in choices], "high": [band.high for band in choices]}
    figures = {"teacher_share": [band.large_share for band in choices], "kappa": [band.kappa for band in choices]}
    edges = {name: pa.array(values, pa.float64()) for name, values in (columns | figures).items()}
    return pa.table({"agreement": pa.array(AGREEMENTS, pa.float64())} | edges)


def _agreement(pairs: HeldOutPairs, labels: Mask) -> dict[str, float | None]:
    labelled = pairs.is_labelled
    counts = confusion(labels[labelled], pairs.people[labelled] > 0, pairs.weight[labelled])
    return {
        "agreement": float((labels == pairs.teacher).mean()),
        "kappa": finite_or_none(cohens_kappa(confusion(labels, pairs.teacher))),
        "people_kappa": finite_or_none(cohens_kappa(counts)),
    }
