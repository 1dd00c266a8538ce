"""Grid points that train an `adapt` method: the query side moves, documents stay frozen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from darklode.pipeline.laws.trainer import UNTRAINED, Tell, TrainedModel
from darklode.pipeline.train.fit.methods import method_of
from darklode.pipeline.train.fit.model_selection import ValidationScore, best_score, preference, score_shares
from darklode.schemas.adaptation import AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.laws.grid_point import GridEvaluator, GridPoint
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.data.vectors import Floats, FrozenIndex


@dataclass(frozen=True)
class AdapterTrainer:
    """Trains a method of `adapt`.

    Attributes:
        adapt: method, loss, negatives, steps and learning rates.
    """

    adapt: AdaptSettings

    tables_read = ()
    advice = "--set adapt.learning_rates=[0.0001]"

    @property
    def identity(self) -> dict[str, Any]:
        return self.adapt.decisive()

    @property
    def same_document(self) -> bool:
        return self.adapt.allow_same_document_negatives

    @property
    def temperature(self) -> float:
        return self.adapt.temperature

    def settings(self, bench: GridEvaluator) -> int:
        return len(method_of(self.adapt, bench.desk.base).hyperparameters)

    def looked_at(self, queries: int) -> int:
        return queries

    def train(self, bench: GridEvaluator, task: Task, cell: GridPoint, tell: Tell) -> TrainedModel:
        """Keeps the best weights of all settings and their best share of the way from the base."""
        method = method_of(self.adapt, bench.desk.base)
        best_model: tuple[ValidationScore, float, Any] | None = None
        for setting in method.hyperparameters:
            about = f"{cell.name}, {method.about} {setting:g}"

            def on_progress(step: int, message: str, about: str = about) -> None:
                tell(step, self.adapt.max_steps, f"{about}: {message}")

            course = method.fit(replace(task, is_complete=not bench.chooses), setting, cell.number, on_progress)
            score = (
                best_score(score_shares(task, method, course.best_weights))
                if bench.chooses
                else ValidationScore(1.0, 0.0, 0)
            )
            if best_model is None or preference(score) > preference(best_model[0]):
                best_model = score, setting, course.best_weights
        assert best_model is not None
        score, setting, weights = best_model
        if not score.share:
            return replace(UNTRAINED, pairs=len(task.pair_query))
        return TrainedModel(
            f"{method.about} {setting:g} × {score.share:g}", len(task.pair_query), (method, weights, score.share)
        )

    @contextmanager
    def search_with(self, bench: GridEvaluator, trained_model: TrainedModel) -> Iterator[tuple[FrozenIndex, Floats]]:
        if trained_model.weights is None:
            yield bench.task.frozen, bench.queries.vectors
            return
        method, weights, share = trained_model.weights
        yield method.transform_index(bench.task.frozen, weights, share), method.vectors(weights, share, bench.queries)
