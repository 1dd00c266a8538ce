"""Looks at held-out queries while towers learn: so often, what is seen, and the weights of the best look."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from darklode.pipeline.towers.checkpoint import Checkpoints
from darklode.pipeline.train.weights import Weights

Tell = Callable[[int, str], None]


def format_loss(loss: float | None, digits: int) -> str:
    """A loss, for the progress line; before the first step there is none."""
    return "–" if loss is None else f"{loss:.{digits}f}"


class MonitorPoint(Protocol):
    """What was seen after so many steps."""

    @property
    def step(self) -> int:
        """How many."""

    @property
    def quality(self) -> float:
        """Of two looks the one with more is the better."""


Seen = TypeVar("Seen", bound=MonitorPoint)


@dataclass
class MonitorHistory(Generic[Seen]):
    """How a trial went.

    Attributes:
        eval_points: at the held-out queries, in order.
        best_weights: weights at the best of them.
        last_eval: the best; of equals the first.
    """

    eval_points: list[Seen] = field(default_factory=list)
    best_weights: Weights = field(default_factory=dict)

    @property
    def last_eval(self) -> Seen:
        """The best look; of equals the first."""
        return max(self.eval_points, key=lambda look: look.quality)

    @property
    def step(self) -> int:
        """When that was."""
        return self.last_eval.step


class TrainingMonitor(ABC, Generic[Seen]):
    """Looks now and then, and keeps the best weights.

    Args:
        steps: of the trial.
        looks: how many, besides that before the first step.
        checkpoints: of what learns, whose best weights are kept.
        tell: hears of each look: steps done, and what was seen.

    Attributes:
        course: so far.
        losses: parts of the loss at each step since the last look.
    """

    def __init__(self, steps: int, looks: int, checkpoints: Checkpoints, tell: Tell) -> None:
        self.course, self.losses = MonitorHistory[Seen](), list[Tensor]()
        self._steps, self._every = steps, max(1, steps // looks)
        self._checkpoints, self._tell = checkpoints, tell

    def resume(self, look: type[Seen]) -> int:
        """Go on where the trial was killed; returns the steps done.

        Args:
            evaluate: what is seen.
        """
        return self._checkpoints.resume(self.course, look)

    def evaluate_step(self, step: int) -> bool:
        """Look where it is time to, so many steps having been taken; whether another one follows."""
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
        """What is seen now, and how it is told.

        Args:
            step: steps done.
            first: mean of the loss's first part since the last look; None before the first step.
            second: likewise.
        """
