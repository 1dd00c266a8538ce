"""Cells that train what `adapt` would: queries move, documents stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from darklode.pipeline.laws.trainer import UNTRAINED, Tell, Trained
from darklode.pipeline.train.choice import Reached, most, preference, reach
from darklode.pipeline.train.methods import method_of
from darklode.schemas.adaptation import AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.laws.cell import Bench, Cell
    from darklode.pipeline.train.task import Task
    from darklode.pipeline.train.vectors import Floats, Frozen


@dataclass(frozen=True)
class Adapting:
    """A method of `adapt`; see `Trainer`.

    Attributes:
        adapt: method, loss, negatives, steps and learning rates.
    """

    adapt: AdaptSettings

    reads = ()
    advice = "--set adapt.learning_rates=[0.0001]"

    @property
    def identity(self) -> dict[str, Any]:
        """See `Trainer`."""
        return self.adapt.decisive()

    @property
    def same_document(self) -> bool:
        """See `Trainer`."""
        return self.adapt.same_document

    @property
    def temperature(self) -> float:
        """See `Trainer`."""
        return self.adapt.temperature

    def settings(self, bench: Bench) -> int:
        """See `Trainer`."""
        return len(method_of(self.adapt, bench.desk.base).tried)

    def looked_at(self, queries: int) -> int:
        """See `Trainer`: all of them."""
        return queries

    def trained(self, bench: Bench, task: Task, cell: Cell, tell: Tell) -> Trained:
        """See `Trainer`; of the best weights the best share of the way is taken."""
        method = method_of(self.adapt, bench.desk.base)
        best: tuple[Reached, float, Any] | None = None
        for setting in method.tried:
            about = f"{cell.name}, {method.about} {setting:g}"

            def hear(step: int, seen: str, about: str = about) -> None:
                tell(step, self.adapt.steps, f"{about}: {seen}")

            course = method.trained(replace(task, whole=not bench.chooses), setting, cell.number, hear)
            found = most(reach(task, method, course.best)) if bench.chooses else Reached(1.0, 0.0, 0)
            if best is None or preference(found) > preference(best[0]):
                best = found, setting, course.best
        assert best is not None
        one, setting, weights = best
        if not one.share:
            return replace(UNTRAINED, pairs=len(task.pair_query))
        return Trained(
            f"{method.about} {setting:g} × {one.share:g}", len(task.pair_query), (method, weights, one.share)
        )

    @contextmanager
    def searching(self, bench: Bench, found: Trained) -> Iterator[tuple[Frozen, Floats]]:
        """See `Trainer`."""
        if found.weights is None:
            yield bench.task.frozen, bench.asked.vectors
            return
        method, weights, share = found.weights
        yield method.searched(bench.task.frozen, weights, share), method.vectors(weights, share, bench.asked)
