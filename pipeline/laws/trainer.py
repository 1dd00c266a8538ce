"""What a cell trains, behind one port: `adapt`'s methods, or both towers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from darklode.pipeline.laws.cell import GridEvaluator, GridPoint
    from darklode.pipeline.train.task import Task
    from darklode.pipeline.train.vectors import Floats, FrozenIndex

Tell = Callable[[int, int, str], None]


@dataclass(frozen=True)
class TrainedModel:
    """What was chosen of a cell's trials.

    Attributes:
        chosen: setting, and step or share of the way; `base`: step 0.
        pairs: that were learned from.
        weights: as its trainer knows them; None: step 0.
    """

    chosen: str
    pairs: int
    weights: Any


UNTRAINED = TrainedModel("base", 0, None)


class GridTrainer(Protocol):
    """Trains an encoder on a cell's labels, and searches with what was trained."""

    @property
    def tables_read(self) -> tuple[str, ...]:
        """Tables that it needs besides those of `adaptation_pairs`."""

    @property
    def same_document(self) -> bool:
        """Whether other texts of a positive's document may be negatives."""

    @property
    def advice(self) -> str:
        """How one setting alone is named, where validation is too small to choose between several."""

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that can change what a cell reaches."""

    @property
    def temperature(self) -> float:
        """What scores are divided by."""

    def settings(self, bench: GridEvaluator) -> int:
        """How many are tried."""

    def looked_at(self, queries: int) -> int:
        """Of so many validation queries, how many are looked at."""

    def train(self, bench: GridEvaluator, task: Task, cell: GridPoint, tell: Tell) -> TrainedModel:
        """Train on the task's pairs: stopped on validation where the bench chooses, otherwise to the last step."""

    def search_with(
        self, bench: GridEvaluator, trained_model: TrainedModel
    ) -> AbstractContextManager[tuple[FrozenIndex, Floats]]:
        """The texts' vectors, and the unit vectors of the bench's test queries, shape (n_queries, dimensions)."""
