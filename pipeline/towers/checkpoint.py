"""What a trial needs to go on after a kill, written now and then: weights, optimiser, rate, looks, the best weights."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from darklode.pipeline.train.processes import is_leader, wait_for_all
from darklode.pipeline.train.weights import Weights

if TYPE_CHECKING:
    from darklode.pipeline.towers.watch import MonitorHistory

SECONDS = 600.0
"""Between two checkpoints, at least: what a kill costs, up to the next look."""


class CheckpointStore(Protocol):
    """Where the state lies."""

    def read(self) -> bytes | None:
        """What was written last; None where nothing was."""

    def write(self, data: bytes) -> None:
        """Keep it in the place of what was written before."""


class NoCheckpoints:
    """Nothing is kept."""

    def read(self) -> None:
        """See `CheckpointStore`."""

    def write(self, data: bytes) -> None:
        """See `CheckpointStore`."""


class Resumable(Protocol):
    """What learns."""

    def state(self) -> Weights:
        """Copies of what it trains, by name."""

    def restore(self, weights: Weights) -> None:
        """Take such copies back."""


@dataclass
class Checkpoints:
    """Keeps the state of a trial.

    Attributes:
        store: where.
        learner: what learns.
        moving: optimiser and schedule of its rate.
    """

    store: CheckpointStore
    learner: Resumable
    moving: Sequence[Any] = ()

    def __post_init__(self) -> None:
        self._last = time.monotonic()

    def write(self, course: MonitorHistory[Any]) -> None:
        """Keep how far it is, if it is time to; between two steps, a look having been taken."""
        if isinstance(self.store, NoCheckpoints) or not is_leader() or time.monotonic() - self._last < SECONDS:
            return
        sink = io.BytesIO()
        looks, best_tensors = [asdict(look) for look in course.eval_points], _tensors(course.best_weights)
        moving = [part.state_dict() for part in self.moving]
        torch.save(
            {"weights": _tensors(self.learner.state()), "best": best_tensors, "looks": looks, "moving": moving}, sink
        )
        self.store.write(sink.getvalue())
        self._last = time.monotonic()

    def resume(self, course: MonitorHistory[Any], look: type[Any]) -> int:
        """Go back to where it was; returns the steps done, 0 where nothing is kept.

        Args:
            course: gets what was kept.
            look: what its looks are.
        """
        data = self.store.read()
        wait_for_all()  # before the first of several processes writes the next
        if data is None:
            return 0
        checkpoint = torch.load(io.BytesIO(data), weights_only=True)
        self.learner.restore(_arrays(checkpoint["weights"]))
        for part, state in zip(self.moving, checkpoint["moving"], strict=True):
            part.load_state_dict(state)
        course.best_weights = _arrays(checkpoint["best"])
        course.eval_points = [look(**row) for row in checkpoint["looks"]]
        return int(course.eval_points[-1].step)


def _tensors(weights: Weights) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in weights.items()}


def _arrays(tensors: dict[str, torch.Tensor]) -> Weights:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
