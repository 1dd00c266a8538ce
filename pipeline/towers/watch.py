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


def shown(loss: float | None, digits: int) -> str:
    """A loss, for the progress line; before the first step there is none."""
    return "–" if loss is None else f"{loss:.{digits}f}"


class Look(Protocol):
    """What was seen after so many steps."""

    @property
    def step(self) -> int:
        """How many."""

    @property
    def worth(self) -> float:
        """Of two looks the one with more is the better."""


Seen = TypeVar("Seen", bound=Look)


@dataclass
class Course(Generic[Seen]):
    """How a trial went.

    Attributes:
        looks: at the held-out queries, in order.
        best: weights at the best of them.
        reached: the best; of equals the first.
    """

    looks: list[Seen] = field(default_factory=list)
    best: Weights = field(default_factory=dict)

    @property
    def reached(self) -> Seen:
        """The best look; of equals the first."""
        return max(self.looks, key=lambda look: look.worth)

    @property
    def step(self) -> int:
        """When that was."""
        return self.reached.step


class Watch(ABC, Generic[Seen]):
    """Looks now and then, and keeps the best weights.

    Args:
        steps: of the trial.
        looks: how many, besides that before the first step.
        checkpoints: of what learns, whose best weights are kept.
        tell: hears of each look: steps done, and what was seen.

    Attributes:
        course: so far.
        seen: parts of the loss at each step since the last look.
    """

    def __init__(self, steps: int, looks: int, checkpoints: Checkpoints, tell: Tell) -> None:
        self.course, self.seen = Course[Seen](), list[Tensor]()
        self._steps, self._every = steps, max(1, steps // looks)
        self._checkpoints, self._tell = checkpoints, tell

    def resume(self, look: type[Seen]) -> int:
        """Go on where the trial was killed; returns the steps done.

        Args:
            look: what is seen.
        """
        return self._checkpoints.resume(self.course, look)

    def goes_on(self, step: int) -> bool:
        """Look where it is time to, so many steps having been taken; whether another one follows."""
        last = step >= self._steps
        looked = self.course.looks and self.course.looks[-1].step == step
        if (step % self._every == 0 or last) and not looked:
            self._keep(step)
        return not last

    def _keep(self, step: int) -> None:
        means = torch.stack(self.seen).mean(dim=0).tolist() if self.seen else [None, None]
        look, said = self.look(step, *means)
        if not self.course.looks or look.worth > self.course.reached.worth:
            self.course.best = self._checkpoints.learner.state()
        self.course.looks.append(look)
        self.seen.clear()
        self._checkpoints.write(self.course)
        self._tell(step, said)

    @abstractmethod
    def look(self, step: int, first: float | None, second: float | None) -> tuple[Seen, str]:
        """What is seen now, and how it is told.

        Args:
            step: steps done.
            first: mean of the loss's first part since the last look; None before the first step.
            second: likewise.
        """
