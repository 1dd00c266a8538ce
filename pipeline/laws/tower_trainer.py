"""Grid points that train both towers (`train-towers --stage 1`): documents move, too."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darklode.pipeline.laws.grid_point_triplets import write_point_triplets
from darklode.pipeline.laws.trainer import UNTRAINED, GridData, OnProgress, PointKey, TrainedModel
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.evaluation import TOWERS_NAME, read_as
from darklode.pipeline.towers.dual.prompt import DecoderPrompt
from darklode.pipeline.towers.dual.stage import DualInputs, initial_towers, validation_sample_of
from darklode.pipeline.towers.dual.trial_settings import TrialSettings
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tower_tables import TOWER_TRIPLETS
from darklode.schemas.towers import DualSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.base.types import Floats
    from darklode.pipeline.towers.dual.towers import DualTowers
    from darklode.pipeline.towers.dual.training import DualEval, ValidationSample
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.data.vectors import FrozenIndex
    from darklode.pipeline.train.fit.trial import TrainingHistory
    from darklode.pipeline.train.types import OnStep, Weights


@dataclass(frozen=True)
class DualTowerTrainer:
    """Trains a query and a document tower.

    All grid points of an encoder start from the same towers, initialized from the first triplets of the whole table, so
    step 0 is the same at each size and uses no label.

    Attributes:
        dual: settings of the two towers: views, losses, steps and learning rates.
        lora: settings of the LoRA adapters: rank, alpha and target modules.
    """

    dual: DualSettings
    lora: AdaptSettings

    tables_read = (TOWER_TRIPLETS.name,)
    same_document = True
    advice = "--set dual.learning_rates=[2e-05] --set dual.temperatures=[0.05]"

    @property
    def identity(self) -> dict[str, Any]:
        return self.dual.decisive() | self.lora.decisive() | {"is asked": DecoderPrompt.load(self.dual.prompt).digest()}

    @property
    def temperature(self) -> float:
        """The first configured temperature, used for all grid points."""
        return self.dual.temperatures[0]

    def n_settings(self, _base: BaseEncoder) -> int:
        return len(self._trial_settings)

    def n_evaluated(self, n_validation: int) -> int:
        return min(n_validation, self.dual.eval_queries)

    def train(self, data: GridData, task: Task, point: PointKey, on_progress: OnProgress) -> TrainedModel:
        """Train one trial per learning rate and temperature; return the best evaluated one, the first of equal ones."""
        best_trial: tuple[float, str, Weights | None] | None = None
        with tempfile.TemporaryDirectory(prefix="darklode-cell-") as scratch:
            triplets = write_point_triplets(data, task, point, scratch)
            sample = validation_sample_of(data.tables, data.base.sources, self.dual.eval_queries, data.seed)
            for rate, temperature in self._trial_settings:
                name = f"learning rate {rate:g}, τ {temperature:g}"

                def on_step(step: int, message: str, name: str = name) -> None:
                    on_progress(step, self.dual.max_steps, f"{point.name}, {name}: {message}")

                trial = TrialSettings(rate, temperature, point.seed, keep_last=not data.can_select)
                history = self._run_trial(data, triplets, sample, trial, on_step)
                quality, step = history.best_point.validation, history.step
                if best_trial is None or quality > best_trial[0]:
                    chosen = f"{name}, step {step}" if step else UNTRAINED.chosen
                    best_trial = quality, chosen, history.best_weights if step else None
            assert best_trial is not None
            return TrainedModel(best_trial[1], triplets.rows(TOWER_TRIPLETS.name), best_trial[2])

    def _run_trial(
        self, data: GridData, triplets: Tables, sample: ValidationSample, trial: TrialSettings, on_step: OnStep
    ) -> TrainingHistory[DualEval]:
        from darklode.pipeline.towers.dual.training import train_towers
        from darklode.pipeline.towers.dual.triplet_batches import TripletStream
        from darklode.pipeline.train.fit.determinism import deterministic

        with deterministic(trial.seed):
            towers = self._initial_towers(data)
            stream = TripletStream(triplets, self.dual.batch_size, trial.seed)
            return train_towers(stream, sample, towers, self.dual, trial, on_step)

    @contextmanager
    def search_with(self, data: GridData, model: TrainedModel) -> Iterator[tuple[FrozenIndex, Floats]]:
        """The towers are loaded as they would be released; their vectors are not cached."""
        from darklode.pipeline.train.fit.determinism import deterministic

        base = data.base
        with tempfile.TemporaryDirectory(prefix="darklode-towers-") as scratch, deterministic(0):
            towers = self._initial_towers(data)
            folder = Path(scratch) / TOWERS_NAME
            if model.weights is not None:
                towers.restore(model.weights)
            towers.merged_query_tower().save_pretrained(str(folder), create_model_card=False)
            cache = base.cache.model_copy(update={"root": f"{scratch}/cache"})
            saved = replace(base, encoder=read_as(_encoder(base), str(folder)), cache=cache)
            frozen = saved.open(data.tables)
            yield frozen, frozen.encode(list(data.queries.texts))

    def _initial_towers(self, data: GridData) -> DualTowers:
        inputs = DualInputs(_encoder(data.base), data.base.sources, self.dual.prompt)
        return initial_towers(data.tables, self.dual, self.lora, inputs)

    @property
    def _trial_settings(self) -> list[tuple[float, float]]:
        """All combinations of learning rate and temperature."""
        return list(product(self.dual.learning_rates, self.dual.temperatures))


def _encoder(base: BaseEncoder) -> SentenceTransformersSettings:
    """The settings of the encoder, which must be a Sentence Transformers model: others cannot be trained."""
    assert isinstance(base.encoder, SentenceTransformersSettings)
    return base.encoder
