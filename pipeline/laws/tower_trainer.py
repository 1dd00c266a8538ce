"""Grid points that train both towers (`train-towers --stage 1`): documents move, too."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darklode.pipeline.laws.grid_point_triplets import cell_triplets
from darklode.pipeline.laws.trainer import UNTRAINED, Tell, TrainedModel
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.evaluation import NAME, read_as
from darklode.pipeline.towers.dual.prompt import DecoderPrompt
from darklode.pipeline.towers.dual.stage import DualInputs, initial_towers, validation_sample_of
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tower_tables import TOWER_TRIPLETS
from darklode.schemas.towers import DualSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.laws.grid_point import GridEvaluator, GridPoint
    from darklode.pipeline.towers.dual.towers import DualTowers
    from darklode.pipeline.towers.dual.training import DualEval, ValidationSample
    from darklode.pipeline.towers.periodic_evaluation import MonitorHistory
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.data.vectors import Floats, FrozenIndex
    from darklode.pipeline.train.fit.weights import Weights


@dataclass(frozen=True)
class DualTowerTrainer:
    """Trains a query and a document tower.

    All grid points of an encoder start from the same towers, initialized from the first triplets of the whole table, so
    step 0 is the same at each size and uses no label.

    Attributes:
        dual: views, losses, steps and rates.
        lora: rank, alpha and target modules.
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

    def settings(self, _bench: GridEvaluator) -> int:
        return len(self._trial_settings)

    def looked_at(self, queries: int) -> int:
        return min(queries, self.dual.eval_queries)

    def train(self, bench: GridEvaluator, task: Task, cell: GridPoint, tell: Tell) -> TrainedModel:
        """Keeps the best evaluation of all trials; the first one wins ties."""
        best_trial: tuple[float, str, Weights | None] | None = None
        with tempfile.TemporaryDirectory(prefix="darklode-cell-") as scratch:
            triplets = cell_triplets(bench.desk, task, cell, scratch)
            validation_sample = validation_sample_of(
                bench.desk.tables, bench.desk.base.sources, self.dual.eval_queries, bench.desk.seed
            )
            for rate, temperature in self._trial_settings:
                about = f"learning rate {rate:g}, τ {temperature:g}"

                def on_progress(step: int, message: str, about: str = about) -> None:
                    tell(step, self.dual.max_steps, f"{cell.name}, {about}: {message}")

                course, last = self._run_trial(
                    bench, (triplets, validation_sample), (rate, temperature, cell.number), on_progress
                )
                step, weights = (course.step, course.best_weights) if bench.chooses else (self.dual.max_steps, last)
                if best_trial is None or course.last_eval.validation > best_trial[0]:
                    chosen = f"{about}, step {step}" if step else UNTRAINED.chosen
                    best_trial = course.last_eval.validation, chosen, weights if step else None
            assert best_trial is not None
            return TrainedModel(best_trial[1], triplets.rows(TOWER_TRIPLETS.name), best_trial[2])

    def _run_trial(
        self,
        bench: GridEvaluator,
        triplets_and_sample: tuple[Tables, ValidationSample],
        tried: tuple[float, float, int],
        hear: Callable[[int, str], None],
    ) -> tuple[MonitorHistory[DualEval], Weights]:
        """History of one trial, and the weights after the last step."""
        from darklode.pipeline.towers.dual.training import DualTrial, train_towers
        from darklode.pipeline.towers.dual.triplet_batches import Stream
        from darklode.pipeline.train.fit.loop import deterministic

        triplets, validation_sample = triplets_and_sample
        with deterministic(tried[2]):
            towers, stream = self._initial_towers(bench), Stream(triplets, self.dual.batch_size, tried[2])
            course = train_towers(stream, validation_sample, towers, self.dual, DualTrial(*tried), hear)
            return course, towers.state()

    @contextmanager
    def search_with(self, bench: GridEvaluator, trained_model: TrainedModel) -> Iterator[tuple[FrozenIndex, Floats]]:
        """The towers are loaded as they would be released; their vectors are not cached."""
        from darklode.pipeline.train.fit.loop import deterministic

        base = bench.desk.base
        with tempfile.TemporaryDirectory(prefix="darklode-towers-") as scratch, deterministic(0):
            towers, folder = self._initial_towers(bench), Path(scratch) / NAME
            if trained_model.weights is not None:
                towers.restore(trained_model.weights)
            towers.merged_query_tower().save_pretrained(str(folder), create_model_card=False)
            cache = base.cache.model_copy(update={"root": f"{scratch}/cache"})
            both = replace(base, encoder=read_as(_encoder(bench), str(folder)), cache=cache)
            frozen = both.open(bench.desk.tables)
            yield frozen, frozen.encode(list(bench.queries.texts))

    def _initial_towers(self, bench: GridEvaluator) -> DualTowers:
        base = bench.desk.base
        beginning = DualInputs(_encoder(bench), base.sources, self.dual.prompt)
        return initial_towers(bench.desk.tables, self.dual, self.lora, beginning)

    @property
    def _trial_settings(self) -> list[tuple[float, float]]:
        return list(product(self.dual.learning_rates, self.dual.temperatures))


def _encoder(bench: GridEvaluator) -> SentenceTransformersSettings:
    encoder = bench.desk.base.encoder
    assert isinstance(encoder, SentenceTransformersSettings)
    return encoder
