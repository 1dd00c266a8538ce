"""Checkpoints of a trial: weights, optimizer, schedule, history and best weights."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from darklode.pipeline.train.fit.distributed import is_leader, wait_for_all
from darklode.pipeline.train.types import Weights

if TYPE_CHECKING:
    from darklode.pipeline.towers.periodic_evaluation import MonitorHistory

SECONDS = 600.0
"""Minimum seconds between two checkpoints: an upper bound of what a kill costs, plus the time to the next evaluation.
"""


class CheckpointStore(Protocol):
    """Stores one checkpoint."""

    def read(self) -> bytes | None:
        """The last checkpoint; None if there is none."""

    def write(self, data: bytes) -> None:
        """Replace the checkpoint."""


class NoCheckpoints:
    """Stores nothing."""

    def read(self) -> None:
        """There is no checkpoint."""

    def write(self, data: bytes) -> None:
        """Discard it."""


class Resumable(Protocol):
    """A model whose state can be saved and restored."""

    def state(self) -> Weights:
        """Copies of the trained tensors by name."""

    def restore(self, weights: Weights) -> None:
        """Set the trained tensors."""


@dataclass
class Checkpoints:
    """Saves and restores the state of a trial.

    Attributes:
        store: where it is stored.
        learner: the model.
        moving: optimizer and learning-rate schedule.
    """

    store: CheckpointStore
    learner: Resumable
    moving: Sequence[Any] = ()

    def __post_init__(self) -> None:
        self._last = time.monotonic()

    def write(self, course: MonitorHistory[Any]) -> None:
        """Save a checkpoint if one is due; call it between two steps, after an evaluation."""
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
        """Restore the last checkpoint; returns the steps done, 0 without a checkpoint.

        Args:
            course: receives the saved history.
            look: type of its evaluations.
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
