"""The port for what a grid point trains: an `adapt` method or both towers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.base.types import Floats
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import QuerySet, Task
    from darklode.pipeline.train.data.vectors import FrozenIndex

OnProgress = Callable[[int, int, str], None]
"""Progress callback: steps done, steps in total, and a message."""


@dataclass(frozen=True)
class PointKey:
    """A grid point of an encoder.

    Attributes:
        source: name of the label source.
        size: number of labelled training queries; 0 is the untrained encoder.
        seed: seed of the sampled queries and of training.
    """

    source: str
    size: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.source}, {self.size}, seed {self.seed}"


@dataclass(frozen=True)
class GridData:
    """What all grid points of an encoder train on and are tested with.

    Attributes:
        tables: tables of the stage `adaptation_pairs`, and those in `GridTrainer.tables_read`.
        base: the encoder that training starts from.
        seed: seed of the samples that all grid points share.
        task: all training and validation queries with the run's labels.
        queries: the test queries, the same for all grid points.
        can_select: whether there are enough validation queries to select settings and steps.
    """

    tables: Tables
    base: BaseEncoder
    seed: int
    task: Task
    queries: QuerySet
    can_select: bool


@dataclass(frozen=True)
class TrainedModel:
    """The selected model of a grid point.

    Attributes:
        chosen: the selected setting and step, or how much of the trained change is applied; `base` means untrained.
        pairs: number of training pairs.
        weights: weights in the trainer's own format; None means untrained.
    """

    chosen: str
    pairs: int
    weights: Any


UNTRAINED = TrainedModel("base", 0, None)
"""The encoder as it is, without training."""


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

    def n_settings(self, base: BaseEncoder) -> int:
        """Number of settings to try."""

    def n_evaluated(self, n_validation: int) -> int:
        """How many of the validation queries are used for evaluation."""

    def train(self, data: GridData, task: Task, point: PointKey, on_progress: OnProgress) -> TrainedModel:
        """Train on the task; selects on validation if `data.can_select`, otherwise takes the last step."""

    def search_with(self, data: GridData, model: TrainedModel) -> AbstractContextManager[tuple[FrozenIndex, Floats]]:
        """Text vectors, and unit vectors of the test queries, shape (n_queries, dimensions)."""
