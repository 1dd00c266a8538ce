"""The ways to adapt, behind one port: what is trained, and how what was trained makes vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from darklode.pipeline.train.heads import Layers
from darklode.pipeline.train.loop import Tell, TrainingHistory
from darklode.pipeline.train.weights import Floats, Weights
from darklode.schemas.adaptation import HEADS, AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.task import QuerySet, Task
    from darklode.pipeline.train.vectors import BaseEncoder, FrozenIndex

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Of the way from the base's weights to the trained ones; Wortsman et al. 2022 (WiSE-FT)."""


class Method(Protocol):
    """A way to adapt. Weights are always those of a whole trial, a share of 0 of them is the base.

    Attributes:
        about: what a trial's setting is.
        shares: of the way from the base that are looked at when a trial is over.
    """

    about: str
    shares: Sequence[float]

    @property
    def hyperparameters(self) -> Sequence[float]:
        """The settings, one a trial."""

    def fit(self, task: Task, setting: float, seed: int, tell: Tell) -> TrainingHistory:
        """One trial."""

    def vectors(self, weights: Weights, share: float, queries: QuerySet) -> Floats:
        """Adapted unit vectors of queries, shape (n_queries, dimensions)."""

    def transform_index(self, frozen: FrozenIndex, weights: Weights, share: float) -> FrozenIndex:
        """What adapted queries search: the frozen texts themselves, wherever nothing else is trained."""

    def put_into(self, loaded: Any, weights: Weights, share: float) -> Layers:
        """Change a loaded sentence-transformers model to the adapted one; gives the layers that follow its vector."""

    def export_tensors(self, weights: Weights, share: float) -> dict[str, bytes]:
        """What was trained, without the base: files by name."""


Found = TypeVar("Found")


class PerTaskCache(Generic[Found]):
    """What is found of a task, once for all trials on it; that of the last task is kept.

    Args:
        find: gives it.
    """

    def __init__(self, find: Callable[[Task], Found]) -> None:
        self._find = find
        self._cached: tuple[Task, Found] | None = None

    def __call__(self, task: Task) -> Found:
        if self._cached is None or self._cached[0] is not task:
            self._cached = task, self._find(task)
        return self._cached[1]


def method_of(settings: AdaptSettings, base: BaseEncoder) -> Method:
    """The method that the settings name."""
    from darklode.pipeline.train.head_methods import ClosedFormMethod, HeadMethod, WhiteningMethod

    if settings.method in HEADS:
        kinds = {"closed_form": ClosedFormMethod, "whitened": WhiteningMethod}
        return kinds.get(settings.method, HeadMethod)(settings, base)
    from darklode.pipeline.train.encoder_methods import EncoderMethod

    return EncoderMethod(settings, base)
