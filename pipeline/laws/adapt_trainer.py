"""Grid points that train an `adapt` method: the query side moves, documents stay frozen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from darklode.pipeline.laws.trainer import UNTRAINED, GridData, OnProgress, PointKey, TrainedModel
from darklode.pipeline.train.fit.method_registry import create_method
from darklode.pipeline.train.fit.methods import Method
from darklode.pipeline.train.fit.model_selection import ValidationScore, best_score, preference, score_shares
from darklode.schemas.adaptation import AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Floats
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.data.vectors import FrozenIndex
    from darklode.pipeline.train.types import Weights


@dataclass(frozen=True)
class AdapterTrainer:
    """Trains a method of `adapt`.

    Attributes:
        adapt: settings of `adapt`: method, loss, negatives, steps and learning rates.
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

    def n_settings(self, base: BaseEncoder) -> int:
        return len(_settings(create_method(self.adapt, base)))

    def n_evaluated(self, n_validation: int) -> int:
        return n_validation

    def train(self, data: GridData, task: Task, point: PointKey, on_progress: OnProgress) -> TrainedModel:
        """Train with each setting; return the best weights and how much of their change to the base encoder to apply.

        The share of the change is selected on validation. A share of 0 means that training did not help, so the result
        is the untrained encoder.
        """
        method = create_method(self.adapt, data.base)

        def fit(setting: float) -> tuple[ValidationScore, float, Weights]:
            def on_step(step: int, message: str) -> None:
                name = f"{point.name}, {method.setting_name} {setting:g}"
                on_progress(step, self.adapt.n_steps, f"{name}: {message}")

            trial_task = replace(task, keep_last=not data.can_select)
            weights = method.fit(trial_task, setting, point.seed, on_step).best_weights
            if not data.can_select:
                return ValidationScore(1.0, 0.0, 0), setting, weights
            return best_score(score_shares(task, method, weights)), setting, weights

        score, setting, weights = max(map(fit, _settings(method)), key=lambda trial: preference(trial[0]))
        n_pairs = len(task.pair_query)
        if not score.share:
            return replace(UNTRAINED, pairs=n_pairs)
        chosen = f"{method.setting_name} {setting:g} × {score.share:g}"
        return TrainedModel(chosen, n_pairs, (method, weights, score.share))

    @contextmanager
    def search_with(self, data: GridData, model: TrainedModel) -> Iterator[tuple[FrozenIndex, Floats]]:
        if model.weights is None:
            yield data.task.frozen, data.queries.vectors
            return
        method, weights, share = model.weights
        yield method.transform_index(data.task.frozen, weights, share), method.vectors(weights, share, data.queries)


def _settings(method: Method) -> list[float]:
    """The settings that learn from labels; the untrained start (0) does not change with their number."""
    return [setting for setting in method.hyperparameters if setting]
