"""The port of adaptation methods: what is trained and how it changes query vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.fit.eval_point import EvalPoint
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.pipeline.train.types import Layers, OnStep, Weights

if TYPE_CHECKING:
    from darklode.pipeline.train.data.dataset import QuerySet, Task
    from darklode.pipeline.train.data.vectors import FrozenIndex

INTERPOLATION_SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the way from base weights to trained weights (Wortsman et al. 2022, WiSE-FT)."""


class Method(Protocol):
    """An adaptation method. Weights are always those at the end of a trial; a share of 0 is the base.

    Attributes:
        setting_name: what a trial's setting is.
        shares: shares of the way from the base to evaluate after a trial.
    """

    setting_name: str
    shares: Sequence[float]

    @property
    def hyperparameters(self) -> Sequence[float]:
        """Values to try, one trial each."""

    def fit(self, task: Task, setting: float, seed: int, on_step: OnStep) -> TrainingHistory[EvalPoint]:
        """Run one trial."""

    def vectors(self, weights: Weights, share: float, queries: QuerySet) -> Floats:
        """Adapted unit vectors of queries, shape (n_queries, dimensions)."""

    def transform_index(self, frozen: FrozenIndex, weights: Weights, share: float) -> FrozenIndex:
        """The index that adapted queries search; unchanged unless the method trains documents, too."""

    def apply_to_model(self, loaded: Any, weights: Weights, share: float) -> Layers:
        """Apply the weights to a loaded sentence-transformers model; returns layers to append."""

    def export_tensors(self, weights: Weights, share: float) -> dict[str, bytes]:
        """Files with the trained tensors alone, without the base."""


Result = TypeVar("Result")


class PerTaskCache(Generic[Result]):
    """Caches a computation for the last task only, so that all trials on a task share it.

    Args:
        find: the computation.
    """

    def __init__(self, find: Callable[[Task], Result]) -> None:
        self._find = find
        self._cached: tuple[Task, Result] | None = None

    def __call__(self, task: Task) -> Result:
        if self._cached is None or self._cached[0] is not task:
            self._cached = task, self._find(task)
        return self._cached[1]
