"""Cells that train both towers, as stage I of `train-towers` does: documents move, too."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darklode.pipeline.laws.cell_triplets import cell_triplets
from darklode.pipeline.laws.trainer import UNTRAINED, Tell, Trained
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.prompt import Prompt
from darklode.pipeline.towers.dual.stage import Beginning, begun, sample
from darklode.pipeline.towers.dual.tested import NAME, read_as
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tower_tables import TOWER_TRIPLETS
from darklode.schemas.towers import DualSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables
    from darklode.pipeline.laws.cell import Bench, Cell
    from darklode.pipeline.towers.dual.course import Look, Sample
    from darklode.pipeline.towers.dual.towers import Towers
    from darklode.pipeline.towers.watch import Course
    from darklode.pipeline.train.task import Task
    from darklode.pipeline.train.vectors import Floats, Frozen
    from darklode.pipeline.train.weights import Weights


@dataclass(frozen=True)
class BothTowers:
    """Stage I of `train-towers`; see `Trainer`.

    All cells of an encoder begin with the same towers, those of all triplets' first queries and texts, whatever they
    learn from: step 0 is the same for each size, and knows no label.

    Attributes:
        dual: views, losses, steps and rates.
        lora: rank, alpha and targets.
    """

    dual: DualSettings
    lora: AdaptSettings

    reads = (TOWER_TRIPLETS.name,)
    same_document = True
    advice = "--set dual.learning_rates=[2e-05] --set dual.temperatures=[0.05]"

    @property
    def identity(self) -> dict[str, Any]:
        """See `Trainer`."""
        return self.dual.decisive() | self.lora.decisive() | {"is asked": Prompt.load(self.dual.prompt).digest()}

    @property
    def temperature(self) -> float:
        """See `Trainer`: the first that is tried, for all cells."""
        return self.dual.temperatures[0]

    def settings(self, _bench: Bench) -> int:
        """See `Trainer`."""
        return len(self._tried)

    def looked_at(self, queries: int) -> int:
        """See `Trainer`."""
        return min(queries, self.dual.held_out)

    def trained(self, bench: Bench, task: Task, cell: Cell, tell: Tell) -> Trained:
        """See `Trainer`; the best look of all trials is kept, of equals the first."""
        best: tuple[float, str, Weights | None] | None = None
        with tempfile.TemporaryDirectory(prefix="darklode-cell-") as scratch:
            triplets = cell_triplets(bench.desk, task, cell, scratch)
            looked = sample(bench.desk.tables, bench.desk.base.sources, self.dual.held_out, bench.desk.seed)
            for rate, temperature in self._tried:
                about = f"learning rate {rate:g}, τ {temperature:g}"

                def hear(step: int, seen: str, about: str = about) -> None:
                    tell(step, self.dual.steps, f"{cell.name}, {about}: {seen}")

                course, last = self._trial(bench, (triplets, looked), (rate, temperature, cell.number), hear)
                step, weights = (course.step, course.best) if bench.chooses else (self.dual.steps, last)
                if best is None or course.reached.validation > best[0]:
                    chosen = f"{about}, step {step}" if step else UNTRAINED.chosen
                    best = course.reached.validation, chosen, weights if step else None
            assert best is not None
            return Trained(best[1], triplets.rows(TOWER_TRIPLETS.name), best[2])

    def _trial(
        self,
        bench: Bench,
        given: tuple[Tables, Sample],
        tried: tuple[float, float, int],
        hear: Callable[[int, str], None],
    ) -> tuple[Course[Look], Weights]:
        """How it went, and the weights after the last step."""
        from darklode.pipeline.towers.dual.course import Trial, learn
        from darklode.pipeline.towers.dual.stream import Stream
        from darklode.pipeline.train.loop import steady

        triplets, looked = given
        with steady(tried[2]):
            towers, stream = self._begun(bench), Stream(triplets, self.dual.batch, tried[2])
            course = learn(stream, looked, towers, self.dual, Trial(*tried), hear)
            return course, towers.state()

    @contextmanager
    def searching(self, bench: Bench, found: Trained) -> Iterator[tuple[Frozen, Floats]]:
        """See `Trainer`; the towers are read as they would be handed over, their vectors lie nowhere afterwards."""
        from darklode.pipeline.train.loop import steady

        base = bench.desk.base
        with tempfile.TemporaryDirectory(prefix="darklode-towers-") as scratch, steady(0):
            towers, folder = self._begun(bench), Path(scratch) / NAME
            if found.weights is not None:
                towers.take(found.weights)
            towers.served().save_pretrained(str(folder), create_model_card=False)
            cache = base.cache.model_copy(update={"root": f"{scratch}/cache"})
            both = replace(base, encoder=read_as(_encoder(bench), str(folder)), cache=cache)
            frozen = both.open(bench.desk.tables)
            yield frozen, frozen.encode(list(bench.asked.texts))

    def _begun(self, bench: Bench) -> Towers:
        base = bench.desk.base
        beginning = Beginning(_encoder(bench), base.sources, self.dual.prompt)
        return begun(bench.desk.tables, self.dual, self.lora, beginning)

    @property
    def _tried(self) -> list[tuple[float, float]]:
        return list(product(self.dual.learning_rates, self.dual.temperatures))


def _encoder(bench: Bench) -> SentenceTransformersSettings:
    encoder = bench.desk.base.encoder
    assert isinstance(encoder, SentenceTransformersSettings)
    return encoder
