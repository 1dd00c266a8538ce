"""Distillation of a student: batches of queries, evaluation on held-out queries, best weights kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from darklode.pipeline.base.types import Floats
from darklode.pipeline.towers.checkpoint import Checkpoints, CheckpointStore, NoCheckpoints
from darklode.pipeline.towers.loss import distillation, distillation_parts
from darklode.pipeline.towers.student import Student
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.fit import library_trainer
from darklode.pipeline.train.fit.batches import ShuffledRows
from darklode.pipeline.train.fit.progress import format_loss
from darklode.pipeline.train.fit.trial import KeepBestWeights, ReportProgress, TrainingHistory, Trial, TrialCallback
from darklode.pipeline.train.types import OnStep
from darklode.schemas.towers import DistillSettings

N_EVALUATIONS = 20
"""Evaluations per trial, besides the one before the first step."""

WARM_UP_SHARE, WEIGHT_DECAY = 0.1, 1e-3
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
        texts: texts of the queries.
        pair: gives the teacher's vectors, from the cache.
        validation: held-out queries with the teacher's vectors.
    """

    texts: pa.Array
    pair: TeacherPair
    validation: QuerySet

    def texts_at(self, rows: list[int]) -> list[str]:
        """Texts of some queries."""
        texts: list[str] = self.texts.take(pa.array(rows, pa.int64())).to_pylist()
        return texts

    def sample(self, max_texts: int, seed: int) -> tuple[list[str], Floats]:
        """Texts and teacher vectors of a random sample of queries."""
        order = np.random.default_rng([seed, 1]).permutation(len(self.texts))
        texts = self.texts_at(order[:max_texts].tolist())
        return texts, self.pair.queries(texts)


def distances(teacher: Floats, student: Floats) -> Floats:
    """‖q − s‖ of each query, shape (n_queries,); its mean bounds the loss in quality (ScalingNote, Proposition 3.2)."""
    norms = np.linalg.norm(teacher.astype(np.float64) - student.astype(np.float64), axis=1)
    return np.asarray(norms, np.float32)


def train_student(  # noqa: PLR0913, PLR0917 (model, data, settings and callbacks)
    task: DistillationTask,
    settings: DistillSettings,
    rate: float,
    student: Student,
    seed: int,
    on_step: OnStep,
    checkpoint_store: CheckpointStore | None = None,
) -> TrainingHistory[DistillationEval]:
    """Train a student with the trainer of sentence-transformers: AdamW, linear warm-up and decay.

    Args:
        task: queries and teacher.
        settings: number of steps and batch size.
        rate: peak learning rate.
        student: trained in place.
        seed: seed of the order of queries.
        on_step: progress callback.
        checkpoint_store: continues from its checkpoint; None: no checkpoints.
    """
    optimizer = adamw(student.parameters(), rate)
    rates = schedule(optimizer, settings.max_steps)
    checkpoints = Checkpoints(checkpoint_store or NoCheckpoints(), student, (optimizer, rates))
    trial = DistillationTrial(task, settings.max_steps, student, on_step, checkpoints)
    trial.first_step = checkpoints.resume(trial.history, DistillationEval)
    batches = ShuffledRows(len(task.texts), settings.batch_size, seed)
    batches.skip(trial.first_step)
    training = library_trainer.LibraryTraining(
        n_rows=len(task.texts),
        collator=library_trainer.QueryCollator(student.features, task.texts_at),
        loss=DistillationLoss(student, task, trial),
        batches=batches,
        batch_setting="distill.batch_size",
        optimizer=optimizer,
        schedule=rates,
        seed=seed,
        report_to=settings.report_to,
    )
    library_trainer.fit(student.loaded, trial, training)
    return trial.history


def adamw(parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """AdamW with the paper's weight decay, fused: eight times as fast on a CPU."""
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=WEIGHT_DECAY, fused=True)


def schedule(optimizer: torch.optim.Optimizer, steps: int) -> Any:
    """Linear warm-up for `WARM_UP_SHARE` of the steps, then linear decay to 0."""
    transformers: Any = import_module("transformers")
    return transformers.get_linear_schedule_with_warmup(optimizer, round(WARM_UP_SHARE * steps), steps)


class DistillationTrial(Trial[DistillationEval]):
    """Evaluates the distance between student and teacher."""

    def __init__(
        self, task: DistillationTask, steps: int, student: Student, on_step: OnStep, checkpoints: Checkpoints
    ) -> None:
        callbacks: list[TrialCallback] = [KeepBestWeights(), checkpoints, ReportProgress(on_step, format_distillation)]
        super().__init__(steps, max(1, steps // N_EVALUATIONS), student, callbacks)
        self._task, self._student = task, student

    def evaluate(self, step: int) -> DistillationEval:
        queries, (squared, cosine) = self._task.validation, self.mean_losses(2)
        distance = float(distances(queries.vectors, self._student.vectors(queries)).mean())
        return DistillationEval(step, squared, cosine, distance)


def format_distillation(points: Sequence[DistillationEval]) -> str:
    """The last evaluation as a progress line."""
    latest = points[-1]
    return f"‖q − s‖² {format_loss(latest.squared, 4)}, on held-out queries ‖q − s‖ {latest.distance:.4f}"


class DistillationLoss(nn.Module):
    """Eq. 15 on unit vectors in float32; only the student runs in mixed precision."""

    def __init__(self, student: Student, task: DistillationTask, trial: DistillationTrial) -> None:
        super().__init__()
        self.model, self._student, self._task, self._trial = student.loaded, student, task, trial

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The loss of a batch; `labels` are rows of its texts."""
        with library_trainer.mixed_precision(self._student.loaded.device):
            vectors = self.model(features[0])["sentence_embedding"]
        with torch.autocast(vectors.device.type, enabled=False):
            expected = torch.from_numpy(self._task.pair.queries(self._task.texts_at(labels.tolist())))
            loss_parts = distillation_parts(expected.to(vectors.device), self._student.unit(vectors))
        detached = torch.stack([part.detach() for part in loss_parts])
        self._trial.losses.append(library_trainer.mean_over_processes(detached))
        return distillation(*loss_parts)
