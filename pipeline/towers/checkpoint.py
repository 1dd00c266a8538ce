"""Checkpoints of a trial: weights, optimizer, schedule, history and best weights."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch

from darklode.pipeline.train.fit.distributed import is_leader, wait_for_all
from darklode.pipeline.train.fit.trial import Trainable, TrainingHistory, Trial
from darklode.pipeline.train.types import Weights

MIN_SECONDS = 600.0
"""Minimum seconds between two checkpoints. A killed trial loses at most this, plus the time between two evaluations."""


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


class Resumable(Trainable, Protocol):
    """A model whose state can be restored."""

    def restore(self, weights: Weights) -> None:
        """Set the trained tensors."""


@dataclass
class Checkpoints:
    """Saves and restores a trial; as a callback it saves after an evaluation.

    Attributes:
        store: where the checkpoint is stored.
        model: the model.
        optimizing: optimizer and learning-rate schedule, always in the same order.
    """

    store: CheckpointStore
    model: Resumable
    optimizing: Sequence[Any] = ()

    def __post_init__(self) -> None:
        self._last_written = time.monotonic()

    def after_evaluation(self, trial: Trial[Any]) -> None:
        """Save a checkpoint if one is due."""
        self.write(trial.history)

    def write(self, history: TrainingHistory[Any]) -> None:
        """Save a checkpoint if one is due; call it between two steps, after an evaluation."""
        if (
            isinstance(self.store, NoCheckpoints)
            or not is_leader()
            or time.monotonic() - self._last_written < MIN_SECONDS
        ):
            return
        buffer = io.BytesIO()
        checkpoint = {
            "weights": _tensors(self.model.state()),
            "best": _tensors(history.best_weights),
            "looks": [asdict(point) for point in history.eval_points],
            "moving": [stateful.state_dict() for stateful in self.optimizing],
        }
        torch.save(checkpoint, buffer)
        self.store.write(buffer.getvalue())
        self._last_written = time.monotonic()

    def resume(self, history: TrainingHistory[Any], point_type: type[Any]) -> int:
        """Restore the last checkpoint and return the number of steps done, 0 without a checkpoint.

        Args:
            history: receives the saved evaluations and best weights.
            point_type: type of its evaluations.
        """
        data = self.store.read()
        wait_for_all()  # all processes must have read this checkpoint before the leader writes the next
        if data is None:
            return 0
        checkpoint = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        self.model.restore(_arrays(checkpoint["weights"]))
        for stateful, state in zip(self.optimizing, checkpoint["moving"], strict=True):
            stateful.load_state_dict(state)
        history.best_weights = _arrays(checkpoint["best"])
        history.eval_points = [point_type(**row) for row in checkpoint["looks"]]
        return int(history.eval_points[-1].step)


def _tensors(weights: Weights) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in weights.items()}


def _arrays(tensors: dict[str, torch.Tensor]) -> Weights:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
