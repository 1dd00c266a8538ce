"""Distillation of a student: batches of queries, evaluation on held-out queries, best weights kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from darklode.pipeline.towers.checkpoint import Checkpoints, CheckpointStore, NoCheckpoints
from darklode.pipeline.towers.loss import distillation, parts
from darklode.pipeline.towers.periodic_evaluation import MonitorHistory, Tell, TrainingMonitor, format_loss
from darklode.pipeline.towers.student import Student
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.data.vectors import Ints
from darklode.pipeline.train.fit import library_trainer
from darklode.pipeline.train.fit.weights import Floats
from darklode.schemas.towers import DistillSettings

LOOKS = 20
"""Evaluations per trial, besides the one before the first step."""

WARM_UP, DECAY = 0.1, 1e-3
"""Warm-up share of the steps, and weight decay (ScalingNote, Table 7)."""


@dataclass(frozen=True)
class DistillationEval:
    """A row of `distillation_log`."""

    step: int
    squared: float | None
    cosine: float | None
    distance: float

    @property
    def quality(self) -> float:
        """Negative distance: smaller distances are better."""
        return -self.distance


@dataclass(frozen=True)
class DistillationTask:
    """Training data of a student.

    Attributes:
        texts: of the queries.
        pair: gives the teacher's vectors, from the cache.
        validation: held-out queries with the teacher's vectors.
    """

    texts: pa.Array
    pair: TeacherPair
    validation: QuerySet

    def texts_at(self, rows: list[int]) -> list[str]:
        """Texts of some queries."""
        rows_of_text: list[str] = self.texts.take(pa.array(rows, pa.int64())).to_pylist()
        return rows_of_text

    def draw(self, max_texts: int, seed: int) -> tuple[list[str], Floats]:
        """Texts and teacher vectors of a random sample of queries."""
        texts_drawn = self.texts_at(np.random.default_rng([seed, 1]).permutation(len(self.texts))[:max_texts].tolist())
        return texts_drawn, self.pair.queries(texts_drawn)


class DistillationBatches:
    """Batches of queries without replacement, reshuffled each epoch."""

    def __init__(self, n: int, batch: int, seed: int) -> None:
        self._draws, self._n = np.random.default_rng([seed, 0]), n
        self._waiting, self.size = np.empty(0, np.int64), min(batch, n)

    def next(self) -> Ints:
        """The next batch."""
        while len(self._waiting) < self.size:
            self._waiting = np.concatenate([self._waiting, self._draws.permutation(self._n)])
        turns, self._waiting = self._waiting[: self.size], self._waiting[self.size :]
        return turns

    def skip(self, batches: int) -> None:
        """Skip batches that were read before a restart."""
        for _ in range(batches):
            self.next()


def distances(teacher: Floats, student: Floats) -> Floats:
    """‖q − s‖ of each query, shape (n_queries,); its mean bounds the loss in quality (ScalingNote, Proposition 3.2)."""
    far = np.linalg.norm(teacher.astype(np.float64) - student.astype(np.float64), axis=1)
    return np.asarray(far, np.float32)


def train_student(  # noqa: PLR0913, PLR0917 (what learns, from what, how, and who is told)
    lesson: DistillationTask,
    settings: DistillSettings,
    rate: float,
    student: Student,
    seed: int,
    tell: Tell,
    checkpoint_store: CheckpointStore | None = None,
) -> MonitorHistory[DistillationEval]:
    """Train a student with the trainer of sentence-transformers: AdamW, linear warm-up and decay.

    Args:
        lesson: queries and teacher.
        settings: steps and batch.
        rate: peak learning rate.
        student: trained in place.
        seed: of the order of queries.
        tell: progress callback, receives steps done and a message.
        checkpoint_store: continues from its checkpoint; None: no checkpoints.
    """
    optimiser = adamw(student.parameters(), rate)
    rates = schedule(optimiser, settings.max_steps)
    saving = Checkpoints(checkpoint_store or NoCheckpoints(), student, (optimiser, rates))
    watch = _DistillationMonitor(lesson, settings.max_steps, student, tell, saving)
    done, turns = watch.resume(DistillationEval), DistillationBatches(len(lesson.texts), settings.batch_size, seed)
    turns.skip(done)
    training = library_trainer.Training(
        len(lesson.texts),
        library_trainer.QueryCollator(student.features, lesson.texts_at),
        DistillationLoss(student, lesson, watch),
        lambda step: watch.evaluate_step(done + step),
        optimiser,
        rates,
    )
    steps = library_trainer.BatchSteps(settings.max_steps - done, turns, "distill.batch_size", seed, settings.report_to)
    library_trainer.fit(student.loaded, steps, training)
    return watch.course


def adamw(parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """AdamW with the paper's weight decay, fused: eight times as fast on a CPU."""
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=DECAY, fused=True)


def schedule(optimiser: torch.optim.Optimizer, steps: int) -> Any:
    """Linear warm-up for `WARM_UP` of the steps, then linear decay to 0."""
    transformers: Any = import_module("transformers")
    return transformers.get_linear_schedule_with_warmup(optimiser, round(WARM_UP * steps), steps)


class _DistillationMonitor(TrainingMonitor[DistillationEval]):
    """Evaluates the distance between student and teacher."""

    def __init__(
        self, lesson: DistillationTask, steps: int, student: Student, tell: Tell, checkpoints: Checkpoints
    ) -> None:
        super().__init__(steps, LOOKS, checkpoints, tell)
        self._lesson, self._student = lesson, student

    def evaluate(self, step: int, first: float | None, second: float | None) -> tuple[DistillationEval, str]:
        queries = self._lesson.validation
        distance = float(distances(queries.vectors, self._student.vectors(queries)).mean())
        message = f"‖q − s‖² {format_loss(first, 4)}, on held-out queries ‖q − s‖ {distance:.4f}"
        return DistillationEval(step, first, second, distance), message


class DistillationLoss(nn.Module):
    """Eq. 15 on unit vectors, outside of mixed precision."""

    def __init__(self, student: Student, lesson: DistillationTask, watch: _DistillationMonitor) -> None:
        super().__init__()
        self.model, self._student, self._lesson, self._watch = student.loaded, student, lesson, watch

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The loss of a batch; `labels` are rows of its texts."""
        vectors = self.model(features[0])["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):
            expected = torch.from_numpy(self._lesson.pair.queries(self._lesson.texts_at(labels.tolist())))
            loss_parts = parts(expected.to(vectors.device), self._student.unit(vectors))
        self._watch.losses.append(library_trainer.of_all(torch.stack([part.detach() for part in loss_parts])))
        return distillation(*loss_parts)
