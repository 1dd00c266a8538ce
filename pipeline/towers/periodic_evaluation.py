"""Periodic evaluation during training of towers; keeps the weights of the best evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from darklode.pipeline.towers.checkpoint import Checkpoints
from darklode.pipeline.train.types import OnStep, Weights


def format_loss(loss: float | None, digits: int) -> str:
    """Format a loss for the progress line; it is unknown before the first step."""
    return "–" if loss is None else f"{loss:.{digits}f}"


class MonitorPoint(Protocol):
    """An evaluation after some steps."""

    @property
    def step(self) -> int:
        """Steps done."""

    @property
    def quality(self) -> float:
        """Greater is better."""


Seen = TypeVar("Seen", bound=MonitorPoint)


@dataclass
class MonitorHistory(Generic[Seen]):
    """History of a trial.

    Attributes:
        eval_points: evaluations, in order.
        best_weights: weights at the best evaluation.
    """

    eval_points: list[Seen] = field(default_factory=list)
    best_weights: Weights = field(default_factory=dict)

    @property
    def last_eval(self) -> Seen:
        """The best evaluation; the first one wins ties."""
        return max(self.eval_points, key=lambda look: look.quality)

    @property
    def step(self) -> int:
        """Step of the best evaluation."""
        return self.last_eval.step


class TrainingMonitor(ABC, Generic[Seen]):
    """Evaluates periodically and keeps the best weights.

    Args:
        steps: of the trial.
        looks: number of evaluations, besides the one before the first step.
        checkpoints: of the model.
        tell: progress callback, receives steps done and a message.

    Attributes:
        course: the history so far.
        losses: loss parts of each step since the last evaluation.
    """

    def __init__(self, steps: int, looks: int, checkpoints: Checkpoints, tell: OnStep) -> None:
        self.course, self.losses = MonitorHistory[Seen](), list[Tensor]()
        self._steps, self._every = steps, max(1, steps // looks)
        self._checkpoints, self._tell = checkpoints, tell

    def resume(self, look: type[Seen]) -> int:
        """Continue a killed trial; returns the steps done.

        Args:
            evaluate: type of the evaluations.
        """
        return self._checkpoints.resume(self.course, look)

    def evaluate_step(self, step: int) -> bool:
        """Evaluate if due after this many steps; returns whether another step follows."""
        last = step >= self._steps
        already_evaluated = self.course.eval_points and self.course.eval_points[-1].step == step
        if (step % self._every == 0 or last) and not already_evaluated:
            self._add_point(step)
        return not last

    def _add_point(self, step: int) -> None:
        means = torch.stack(self.losses).mean(dim=0).tolist() if self.losses else [None, None]
        look, message = self.evaluate(step, *means)
        if not self.course.eval_points or look.quality > self.course.last_eval.quality:
            self.course.best_weights = self._checkpoints.learner.state()
        self.course.eval_points.append(look)
        self.losses.clear()
        self._checkpoints.write(self.course)
        self._tell(step, message)

    @abstractmethod
    def evaluate(self, step: int, first: float | None, second: float | None) -> tuple[Seen, str]:
        """Evaluate, and format the result for the progress line.

        Args:
            step: steps done.
            first: mean of the first loss part since the last evaluation; None before the first step.
            second: mean of the second loss part.
        """
