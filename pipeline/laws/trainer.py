"""The port for what a grid point trains: an `adapt` method or both towers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Floats
    from darklode.pipeline.laws.grid_point import GridEvaluator, GridPoint
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.data.vectors import FrozenIndex

Tell = Callable[[int, int, str], None]


@dataclass(frozen=True)
class TrainedModel:
    """The selected model of a grid point.

    Attributes:
        chosen: setting, and step or share of the way; `base` means step 0.
        pairs: number of training pairs.
        weights: in the trainer's own format; None means step 0.
    """

    chosen: str
    pairs: int
    weights: Any


UNTRAINED = TrainedModel("base", 0, None)


class GridTrainer(Protocol):
    """Trains an encoder on the labels of a grid point and searches with the result."""

    @property
    def tables_read(self) -> tuple[str, ...]:
        """Tables needed besides those of `adaptation_pairs`."""

    @property
    def same_document(self) -> bool:
        """Whether other chunks of a positive's document may be negatives."""

    @property
    def advice(self) -> str:
        """How to configure a single setting, for the error if validation is too small to select one."""

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that can change a score."""

    @property
    def temperature(self) -> float:
        """Temperature of the softmax in entropy."""

    def settings(self, bench: GridEvaluator) -> int:
        """Number of settings to try."""

    def looked_at(self, queries: int) -> int:
        """How many of `n` validation queries are used for evaluation."""

    def train(self, bench: GridEvaluator, task: Task, cell: GridPoint, tell: Tell) -> TrainedModel:
        """Train on the task; stops early if the evaluator allows selection, otherwise runs to the last step."""

    def search_with(
        self, bench: GridEvaluator, trained_model: TrainedModel
    ) -> AbstractContextManager[tuple[FrozenIndex, Floats]]:
        """Text vectors, and unit vectors of the test queries, shape (n_queries, dimensions)."""
