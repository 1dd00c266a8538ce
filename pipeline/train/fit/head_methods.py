"""Methods that train or solve for a head on the base's query vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.data.negatives import mine_negatives
from darklode.pipeline.train.fit.batched_heads import StackedTrial
from darklode.pipeline.train.fit.batched_training import current_trainer
from darklode.pipeline.train.fit.closed_form import RIDGES, STEP_LENGTHS, solutions
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.fit.eval_point import EvalPoint
from darklode.pipeline.train.fit.heads import Head, dense, head_bytes, layers_of, name_tensors
from darklode.pipeline.train.fit.methods import INTERPOLATION_SHARES, PerTaskCache
from darklode.pipeline.train.fit.term_start import TermStart, best_term_start
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.pipeline.train.fit.whitening import (
    COVARIANCE_POWERS,
    Whitening,
    best_by_power,
    best_uncentered,
    best_whitening,
    whitenings,
)
from darklode.pipeline.train.types import TENSORS_FILE, Layers, OnStep, Weights
from darklode.schemas.adaptation import AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import QuerySet, Task
    from darklode.pipeline.train.data.vectors import FrozenIndex


DEFAULT_LEARNING_RATES = (3e-5, 1e-4, 3e-4)
"""Learning rates to try by default, about a factor of three apart."""


class HeadMethod:
    """`linear` and `ffn`, trained by Darklode's own loop."""

    setting_name = "learning rate"
    shares: Sequence[float] = INTERPOLATION_SHARES

    def __init__(self, settings: AdaptSettings, base: BaseEncoder) -> None:
        self._settings, self._base = settings, base
        maps = PerTaskCache(lambda task: list(whitenings(task)))
        self._start = PerTaskCache(lambda task: best_uncentered(task, maps(task)))
        self._untrained = PerTaskCache(lambda task: best_whitening(task, maps(task)))
        self._term_start = PerTaskCache(lambda task: best_term_start(task, self._start(task)))

    @property
    def hyperparameters(self) -> Sequence[float]:
        """The learning rates; first 0, the whitening itself, if training starts from it."""
        rates = self._settings.learning_rates or DEFAULT_LEARNING_RATES
        return (0.0, *rates) if self._starts_whitened else rates

    @property
    def _starts_whitened(self) -> bool:
        return self._settings.init != "base" and self._settings.method == "linear" and not self._base.start

    def fit(self, task: Task, setting: float, seed: int, on_step: OnStep) -> TrainingHistory[EvalPoint]:
        if self._base.start:
            return self._train(StackedTrial(task, setting, seed, on_step, self._base.start.layers), None)
        if not setting:
            return TrainingHistory(best_weights=untrained_weights(task, self._untrained(task)))
        whitening = self._start(task) if self._starts_whitened else None
        mix = self._term_start(task) if self._starts_whitened else None
        start = None if whitening is None or mix is not None else whitening.layers
        return self._train(StackedTrial(task, setting, seed, on_step, start, anchored=True), mix)

    def _train(self, trial: StackedTrial, mix: TermStart | None) -> TrainingHistory[EvalPoint]:
        """Train a head on query vectors, or on these mixed with term vectors."""
        if mix is None:
            return current_trainer()(trial, self._settings)
        history = current_trainer()(replace(trial, task=mix.apply_to_task(trial.task)), self._settings)
        return replace(history, best_weights=mix.tensors() | dict(history.best_weights))

    def vectors(self, weights: Weights, share: float, queries: QuerySet) -> Floats:
        """Applies the head to base vectors, mixed with term vectors if it starts so; no query is encoded again."""
        mix = TermStart.from_weights(weights, share)
        with deterministic(0):
            return _head(weights, share).apply_to(queries.vectors if mix is None else mix.apply(queries))

    def transform_index(self, frozen: FrozenIndex, _weights: Weights, _share: float) -> FrozenIndex:
        return frozen

    def apply_to_model(self, _loaded: Any, weights: Weights, share: float) -> Layers:
        """The base itself is unchanged."""
        return dense(_head(weights, share).weights())

    def export_tensors(self, weights: Weights, share: float) -> dict[str, bytes]:
        layers = self.apply_to_model(None, weights, share)
        return {TENSORS_FILE: head_bytes(layers, self._base.identity["encoder"])}


def untrained_weights(task: Task, whitening: Whitening | None) -> Weights:
    """A whitening as the weights of a head, mixed with term vectors if that is better on validation.

    Args:
        task: has the validation queries.
        whitening: the map; None: the base.
    """
    mix = best_term_start(task, whitening)
    if mix is not None:
        return dict(Head(task.frozen.dimensions, 1).state()) | mix.tensors()
    return (Head(task.frozen.dimensions, 1) if whitening is None else Head.from_layers(whitening.layers)).state()


def _head(weights: Weights, share: float) -> Head:
    return Head.from_layers(Head.from_layers(layers_of(weights)).weights(share))


class ClosedFormMethod(HeadMethod):
    """`closed_form`: one linear layer per ridge, from one factorization."""

    setting_name = "ridge"
    shares = STEP_LENGTHS

    def __init__(self, settings: AdaptSettings, base: BaseEncoder) -> None:
        super().__init__(settings, base)
        self._solved = PerTaskCache(self._solutions)

    @property
    def hyperparameters(self) -> Sequence[float]:
        """The ridges."""
        return RIDGES

    def fit(self, task: Task, setting: float, _seed: int, on_step: OnStep) -> TrainingHistory[EvalPoint]:
        """Deterministic; the seed is unused."""
        solution = self._solved(task)[setting]
        on_step(self._settings.n_steps, "solved")
        return TrainingHistory(best_weights=name_tensors(solution))

    def _solutions(self, task: Task) -> dict[float, Layers]:
        with deterministic(0):
            return dict(solutions(task, mine_negatives(task, task.train.vectors, self._settings), self._settings))


class WhiteningMethod(HeadMethod):
    """`whitened`: one linear layer per power of the covariance, without labels; validation selects the centering."""

    setting_name = "power"

    def __init__(self, settings: AdaptSettings, base: BaseEncoder) -> None:
        super().__init__(settings, base)
        self._maps = PerTaskCache(best_by_power)

    @property
    def hyperparameters(self) -> Sequence[float]:
        """The powers."""
        return COVARIANCE_POWERS

    def fit(self, task: Task, setting: float, _seed: int, on_step: OnStep) -> TrainingHistory[EvalPoint]:
        """Deterministic; the seed is unused."""
        on_step(self._settings.n_steps, "solved")
        return TrainingHistory(best_weights=untrained_weights(task, self._maps(task)[setting]))
