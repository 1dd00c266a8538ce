"""The training loop around the steps, shared by heads, encoders and towers: periodic evaluation and its callbacks.

A `Trial` does not take steps. Heads are stepped together by `batched_heads`, models by the trainer of
sentence-transformers (`library_trainer`); both call `Trial.after_step` before the first step and after each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from darklode.pipeline.train.types import OnStep, Weights

MAX_GRAD_NORM = 1.0
"""Gradients are clipped to this norm, of heads and of models."""


class Evaluation(Protocol):
    """The result of an evaluation."""

    @property
    def step(self) -> int:
        """Steps done."""

    @property
    def quality(self) -> float:
        """Greater is better."""


Point = TypeVar("Point", bound=Evaluation)


@dataclass
class TrainingHistory(Generic[Point]):
    """History of one trial.

    Attributes:
        eval_points: evaluations, in order.
        best_weights: weights of `best_point`.
        stopped: why the trial ended early, if it did.
        keep_last: the last evaluation counts as the best one, whatever its quality.
    """

    eval_points: list[Point] = field(default_factory=list)
    best_weights: Weights = field(default_factory=dict)
    stopped: str | None = None
    keep_last: bool = False

    @property
    def best_point(self) -> Point:
        """The best evaluation; the first one wins ties."""
        return self.eval_points[-1] if self.keep_last else max(self.eval_points, key=lambda point: point.quality)

    @property
    def step(self) -> int:
        """Step of the best evaluation; 0 for a method without steps."""
        return self.best_point.step if self.eval_points else 0


class Trainable(Protocol):
    """A model in training."""

    def state(self) -> Weights:
        """Copies of the trained tensors by name."""


class TrialCallback(Protocol):
    """Called after each evaluation, in the order of the trial's callbacks."""

    def after_evaluation(self, trial: Trial[Any]) -> None:
        """The new point is the last of `trial.history.eval_points`."""


class KeepBestWeights:
    """Copies the weights whenever the new evaluation is the best one."""

    def after_evaluation(self, trial: Trial[Any]) -> None:
        history = trial.history
        if history.best_point is history.eval_points[-1]:
            history.best_weights = trial.model.state()


@dataclass(frozen=True)
class EarlyStopping:
    """Ends the trial once `find_reason` gives a reason for the evaluations so far, unless it must run to its end."""

    find_reason: Callable[[list[Any]], str | None]

    def after_evaluation(self, trial: Trial[Any]) -> None:
        if not trial.history.keep_last:
            trial.history.stopped = self.find_reason(trial.history.eval_points)


@dataclass(frozen=True)
class ReportProgress:
    """Reports each evaluation as one line.

    Attributes:
        on_step: progress callback.
        format_points: formats the evaluations so far.
    """

    on_step: OnStep
    format_points: Callable[[list[Any]], str]

    def after_evaluation(self, trial: Trial[Any]) -> None:
        points = trial.history.eval_points
        self.on_step(points[-1].step, self.format_points(points))


class Trial(ABC, Generic[Point]):
    """Evaluates every `interval` steps and after the last one, and calls the callbacks.

    Args:
        steps: maximum number of steps.
        interval: steps between two evaluations.
        model: the model.
        callbacks: called after each evaluation, in this order.
        keep_last: see `TrainingHistory`.

    Attributes:
        history: the evaluations so far.
        losses: losses of the steps since the last evaluation; the code that takes the steps appends them.
        first_step: steps done before a restart.
    """

    def __init__(
        self,
        steps: int,
        interval: int,
        model: Trainable,
        callbacks: Sequence[TrialCallback],
        *,
        keep_last: bool = False,
    ) -> None:
        self.steps, self.interval, self.model, self.callbacks = steps, interval, model, callbacks
        self.history, self.losses = TrainingHistory[Point](keep_last=keep_last), list[Tensor]()
        self.first_step = 0

    def after_step(self, step: int) -> bool:
        """Evaluate if due after this many steps; returns whether another step follows."""
        self.prepare_step(step)
        if self.is_evaluation_due(step):
            self.history.eval_points.append(self.evaluate(step))
            self.losses.clear()
            for callback in self.callbacks:
                callback.after_evaluation(self)
        return step < self.steps and self.history.stopped is None

    def is_evaluation_due(self, step: int) -> bool:
        """Whether to evaluate after this many steps; a step that was evaluated before a restart is not repeated."""
        points = self.history.eval_points
        return (step % self.interval == 0 or step >= self.steps) and not (points and points[-1].step == step)

    def prepare_step(self, step: int) -> None:
        """Hook before a possible evaluation, for what the next step needs."""

    def mean_losses(self, n: int) -> Sequence[float | None]:
        """Mean of each of n loss parts since the last evaluation; None before the first step."""
        if not self.losses:
            return [None] * n
        means: list[float] = torch.stack(self.losses).mean(dim=0).tolist()
        return means

    @abstractmethod
    def evaluate(self, step: int) -> Point:
        """Evaluate the model; `losses` holds the losses since the last evaluation, none before the first step."""
