"""What a trial needs to go on after a kill, written now and then: weights, optimiser, rate, looks, the best weights."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from darklode.pipeline.train.processes import leads, wait
from darklode.pipeline.train.weights import Weights

if TYPE_CHECKING:
    from darklode.pipeline.towers.watch import Course

SECONDS = 600.0
"""Between two checkpoints, at least: what a kill costs, up to the next look."""


class Kept(Protocol):
    """Where the state lies."""

    def read(self) -> bytes | None:
        """What was written last; None where nothing was."""

    def write(self, data: bytes) -> None:
        """Keep it in the place of what was written before."""


class Nowhere:
    """Nothing is kept."""

    def read(self) -> None:
        """See `Kept`."""

    def write(self, data: bytes) -> None:
        """See `Kept`."""


class Learner(Protocol):
    """What learns."""

    def state(self) -> Weights:
        """Copies of what it trains, by name."""

    def take(self, weights: Weights) -> None:
        """Take such copies back."""


@dataclass
class Checkpoints:
    """Keeps the state of a trial.

    Attributes:
        kept: where.
        learner: what learns.
        moving: optimiser and schedule of its rate.
    """

    kept: Kept
    learner: Learner
    moving: Sequence[Any] = ()

    def __post_init__(self) -> None:
        self._last = time.monotonic()

    def write(self, course: Course[Any]) -> None:
        """Keep how far it is, if it is time to; between two steps, a look having been taken."""
        if isinstance(self.kept, Nowhere) or not leads() or time.monotonic() - self._last < SECONDS:
            return
        sink = io.BytesIO()
        looks, best = [asdict(look) for look in course.looks], _tensors(course.best)
        moving = [one.state_dict() for one in self.moving]
        torch.save({"weights": _tensors(self.learner.state()), "best": best, "looks": looks, "moving": moving}, sink)
        self.kept.write(sink.getvalue())
        self._last = time.monotonic()

    def resume(self, course: Course[Any], look: type[Any]) -> int:
        """Go back to where it was; returns the steps done, 0 where nothing is kept.

        Args:
            course: gets what was kept.
            look: what its looks are.
        """
        data = self.kept.read()
        wait()  # before the first of several processes writes the next
        if data is None:
            return 0
        found = torch.load(io.BytesIO(data), weights_only=True)
        self.learner.take(_arrays(found["weights"]))
        for one, state in zip(self.moving, found["moving"], strict=True):
            one.load_state_dict(state)
        course.best = _arrays(found["best"])
        course.looks = [look(**row) for row in found["looks"]]
        return int(course.looks[-1].step)


def _tensors(weights: Weights) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in weights.items()}


def _arrays(tensors: dict[str, torch.Tensor]) -> Weights:
    return {name: one.numpy() for name, one in tensors.items()}
