"""Judges whose probability is logistic in what they measure; the weights ship with them, or people teach them."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.agreement import MIN_LABELS, MIN_OF_EACH
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.judge.port import TrainableJudge, replies_of

_DECIMALS = 6
"""Of probabilities: no unit in the last place decides. Weights have as many significant digits."""

_PAIRS_AT_ONCE = 1 << 13
_Floats = NDArray[np.float64]


class PairFeatures(Protocol):
    """What a logistic judge sees of pairs."""

    @property
    def measure_id(self) -> str:
        """All that can change a number, in a word."""

    def __call__(self, pairs: pa.Table) -> _Floats:
        """Numbers of each pair, shape (n_pairs, n_features); not a number where nothing is known of it.

        Args:
            pairs: rows of `PAIRS`.
        """
        ...


@dataclass(frozen=True)
class Logistic:
    """A probability from measured numbers (Platt 1999, for a single one).

    Attributes:
        weights: of the features, in their order.
        intercept: log-odds where all features are 0.
    """

    weights: tuple[float, ...]
    intercept: float

    @classmethod
    def fit(cls, features: _Floats, positive: NDArray[np.bool_]) -> Self:
        """Fit to labels of people: a logistic regression over standardized features.

        The L2 penalty grows with the number of features, so that many of them are not fitted to few labels
        (benchmarks/results/learned_judge.md), and a single one is hardly held back.

        Args:
            features: shape (n_pairs, n_features), none missing.
            positive: shape (n_pairs,), of both kinds.
        """
        from sklearn.linear_model import LogisticRegression

        middle, deviation = features.mean(axis=0), features.std(axis=0)
        spread = np.where(deviation > 0, deviation, 1.0)
        with threadpool_limits(1):  # the number of threads would change the last bits
            model = LogisticRegression(C=1 / features.shape[1], max_iter=1000).fit(
                (features - middle) / spread, positive
            )
        weights = model.coef_[0] / spread
        return cls(tuple(map(_significant, weights)), _significant(model.intercept_[0] - weights @ middle))

    def probability(self, features: _Floats) -> _Floats:
        """Of each row being relevant, shape (n_pairs,); not a number where a feature is none."""
        score = (features * np.array(self.weights)).sum(axis=1) + self.intercept
        return np.asarray(np.round(1 / (1 + np.exp(-score)), _DECIMALS))


def _significant(value: float) -> float:
    return float(f"{value:.{_DECIMALS}g}")


class LogisticJudge(TrainableJudge):
    """Measures pairs and weighs what it measured.

    Args:
        name: of the judge's kind and version, where its id begins.
        measure: what it sees of a pair.
        model: the weights; None: people have to teach it first.
        threshold: the probability from which a pair is relevant.
    """

    def __init__(self, name: str, measure: PairFeatures, model: Logistic | None, threshold: float) -> None:
        self._name, self._measure, self._fixed_model, self._threshold = name, measure, model, threshold

    @property
    def judge_id(self) -> str:
        """The name, what it measures, a hash of the weights, and the threshold.

        Raises:
            SettingsError: it has no weights.
        """
        weights = hashlib.sha256(str(self._model).encode()).hexdigest()[:16]
        return f"{self._name}:{self._measure.measure_id}:{weights}:{self._threshold:g}"

    def with_training(self, pairs: pa.Table, positive: NDArray[np.bool_]) -> LogisticJudge:
        """See `Learner`; pairs of which nothing is known teach nothing.

        Raises:
            SettingsError: all of the pairs are relevant, or none is.
        """
        features = self._compute_features(pairs)
        is_finite = np.isfinite(features).all(axis=1)
        if len(np.unique(positive[is_finite])) < 2:
            raise SettingsError(
                "judge.human_labels: the labels of a fold of the queries are all alike; label more queries"
            )
        return LogisticJudge(
            self._name, self._measure, Logistic.fit(features[is_finite], positive[is_finite]), self._threshold
        )

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """See the port; grade, raw reply and tokens are always null.

        Raises:
            SettingsError: it has no weights.
        """
        model = self._model
        probability = model.probability(await asyncio.to_thread(self._compute_features, pairs))
        unknown = np.isnan(probability)
        columns = {
            "relevant": pa.array(probability >= self._threshold, mask=unknown),
            "probability": pa.array(probability.astype(np.float32), mask=unknown),
            "error": pc.if_else(pa.array(unknown), "nothing is known of this pair", None).cast(pa.string()),
        }
        return replies_of(columns, pairs.num_rows)

    def _compute_features(self, pairs: pa.Table) -> _Floats:
        starts = range(0, max(pairs.num_rows, 1), _PAIRS_AT_ONCE)
        return np.concatenate([self._measure(pairs.slice(start, _PAIRS_AT_ONCE)) for start in starts])

    @property
    def _model(self) -> Logistic:
        if self._fixed_model is None:
            raise SettingsError(
                f"{self._name} ({self._measure.measure_id}) has no weights yet: give it at least {MIN_LABELS} human "
                f"labels of the pool, {MIN_OF_EACH} of them relevant and {MIN_OF_EACH} not (judge.human_labels, "
                "or --human)"
            )
        return self._fixed_model
