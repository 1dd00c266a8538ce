"""Training of both towers: batches of triplets, evaluation on validation queries, best weights kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as processes
from numpy.typing import NDArray
from torch import Tensor, nn

from darklode.pipeline.towers.checkpoint import Checkpoints, CheckpointStore, NoCheckpoints
from darklode.pipeline.towers.distillation import adamw, schedule
from darklode.pipeline.towers.dual.loss import ContrastiveBatch, contrastive, hard_margin
from darklode.pipeline.towers.dual.towers import DualTowers
from darklode.pipeline.towers.dual.trial_settings import TrialSettings
from darklode.pipeline.towers.dual.triplet_batches import TripletStream, allowed_pairs
from darklode.pipeline.train.fit import library_trainer
from darklode.pipeline.train.fit.progress import format_loss
from darklode.pipeline.train.fit.trial import KeepBestWeights, ReportProgress, TrainingHistory, Trial, TrialCallback
from darklode.pipeline.train.types import OnStep
from darklode.schemas.towers import DualSettings

N_EVALUATIONS = 10
"""Evaluations per trial, besides the one before the first step."""


@dataclass(frozen=True)
class DualEval:
    """A row of `dual_log`."""

    step: int
    contrastive: float | None
    margin: float | None
    validation: float

    @property
    def quality(self) -> float:
        return self.validation


@dataclass(frozen=True)
class ValidationSample:
    """The sample that training evaluates on.

    Attributes:
        queries: validation queries.
        texts: their positives and random other texts.
        right: which text is a positive of which query, shape (n_queries, n_texts).
    """

    queries: Sequence[str]
    texts: Sequence[str]
    right: NDArray[np.bool_]

    def score(self, towers: DualTowers) -> float:
        """Mean reciprocal rank of each query's first positive; ties count against it."""
        scores = towers.encode(self.queries, queries=True) @ towers.encode(self.texts, queries=False).T
        best_positive = np.where(self.right, scores, -np.inf).max(axis=1, keepdims=True)
        return float((1 / (1 + ((scores >= best_positive) & ~self.right).sum(axis=1))).mean())


def train_towers(  # noqa: PLR0913, PLR0917 (what learns, from what, how, and who is told)
    stream: TripletStream,
    sample: ValidationSample,
    towers: DualTowers,
    dual: DualSettings,
    trial_settings: TrialSettings,
    on_step: OnStep,
    checkpoint_store: CheckpointStore | None = None,
) -> TrainingHistory[DualEval]:
    """Train both towers with the trainer of sentence-transformers.

    Under torchrun each process encodes its share of every batch, and in-batch negatives are gathered over all
    processes; the steps equal those of a single process.

    Args:
        stream: the triplets.
        sample: for evaluation.
        towers: trained in place.
        dual: views, losses and steps.
        trial_settings: rate, τ and seed.
        on_step: progress callback.
        checkpoint_store: continues from its checkpoint; None: no checkpoints.
    """
    if dual.gradient_checkpointing:
        towers.enable_gradient_checkpointing()
    optimizer = adamw(towers.parameters(), trial_settings.rate)
    rates = schedule(optimizer, dual.max_steps)
    checkpoints = Checkpoints(checkpoint_store or NoCheckpoints(), towers, (optimizer, rates))
    trial = DualTrial(sample, towers, dual.max_steps, on_step, checkpoints, keep_last=trial_settings.keep_last)
    trial.first_step = checkpoints.resume(trial.history, DualEval)
    stream.skip(trial.first_step)
    training = library_trainer.LibraryTraining(
        n_rows=stream.slots,
        collator=DualCollator(stream, towers),
        loss=DualLoss(towers.model, stream, dual, trial_settings.temperature, trial.losses),
        batches=stream,
        batch_setting="dual.batch_size",
        optimizer=optimizer,
        schedule=rates,
        seed=trial_settings.seed,
        report_to=dual.report_to,
    )
    library_trainer.fit(towers.model, trial, training)
    return trial.history


class DualCollator:
    """Tokenizes the queries and documents of a batch, by slot."""

    valid_label_columns = ("label",)

    def __init__(self, stream: TripletStream, towers: DualTowers) -> None:
        self._stream, self._towers = stream, towers

    def __call__(self, rows: list[dict[str, int]]) -> dict[str, Tensor]:
        slots = [row["label"] for row in rows]
        batch = self._stream.rows(slots)
        features = {
            f"query_{name}": feature
            for name, feature in self._towers.query_features(_column_values(batch, "query")).items()
        }
        titles, contents = _column_values(batch, "title"), _column_values(batch, "content")
        read = self._towers.document_features(
            [*titles, *_column_values(batch, "negative_title")], [*contents, *_column_values(batch, "negative_content")]
        )
        return (
            features | {f"document_{name}": feature for name, feature in read.items()} | {"label": torch.tensor(slots)}
        )


def _column_values(batch: pa.Table, column: str) -> list[Any]:
    values: list[Any] = batch[column].to_pylist()
    return values


class DualLoss(nn.Module):
    """L^con + α L^hard (ScalingNote, Eq. 12) over the batches of all processes, outside of mixed precision."""

    def __init__(
        self, model: Any, stream: TripletStream, dual: DualSettings, temperature: float, losses: list[Tensor]
    ) -> None:
        super().__init__()
        self.model, self._stream, self._dual, self._temperature = model, stream, dual, temperature
        self._losses = losses

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The loss of a batch, from tokenized queries and documents, and its slots."""
        queries, documents, has_view = self.model(tuple(features))
        with torch.autocast(queries.device.type, enabled=False):
            batch = self._gather_batch(queries.float(), documents.float(), has_view, labels)
            parts = (
                contrastive(batch, self._dual.matryoshka_dims, self._temperature),
                hard_margin(batch, self._dual.matryoshka_dims, self._dual.triplet_margin),
            )
        self._losses.append(torch.stack([part.detach() for part in parts]))
        return parts[0] + self._dual.margin_loss_weight * parts[1]

    def _gather_batch(self, queries: Tensor, documents: Tensor, has_view: Tensor, labels: Tensor) -> ContrastiveBatch:
        n, slots = len(queries), gather(labels).tolist()
        counts = torch.from_numpy(allowed_pairs(self._stream.rows(slots))).to(queries.device)
        right, wrong, first, second = (
            gather(tensor, 1) for tensor in (documents[:, :n], documents[:, n:], has_view[:, :n], has_view[:, n:])
        )
        return ContrastiveBatch(gather(queries), right, wrong, first, second, counts)


def gather(values: Tensor, dim: int = 0) -> Tensor:
    """Concatenate the values of all processes.

    Each process keeps gradients of its own values only, multiplied by the number of processes: the mean over processes
    that DistributedDataParallel takes is then the gradient of the whole batch.
    """
    if not processes.is_initialized():
        return values
    count, local_values = processes.get_world_size(), values.detach().contiguous()
    local_values = (
        local_values if local_values.is_floating_point() else local_values.to(torch.int64)
    )  # gloo knows no booleans
    parts = [torch.empty_like(local_values) for _ in range(count)]
    processes.all_gather(parts, local_values)
    gathered_parts = [part.to(values.dtype) for part in parts]
    own_part = values.clone()
    if own_part.requires_grad:
        own_part.register_hook(lambda gradient: gradient * count)  # type: ignore[no-untyped-call]
    gathered_parts[processes.get_rank()] = own_part
    return torch.cat(gathered_parts, dim)


class DualTrial(Trial[DualEval]):
    """Evaluates how high validation queries rank their positives."""

    def __init__(
        self,
        sample: ValidationSample,
        towers: DualTowers,
        steps: int,
        on_step: OnStep,
        checkpoints: Checkpoints,
        *,
        keep_last: bool,
    ) -> None:
        callbacks: list[TrialCallback] = [KeepBestWeights(), checkpoints, ReportProgress(on_step, format_dual)]
        super().__init__(steps, max(1, steps // N_EVALUATIONS), towers, callbacks, keep_last=keep_last)
        self._sample, self._towers = sample, towers

    def evaluate(self, step: int) -> DualEval:
        mean_contrastive, mean_margin = self.mean_losses(2)
        return DualEval(step, mean_contrastive, mean_margin, self._sample.score(self._towers))


def format_dual(points: Sequence[DualEval]) -> str:
    """The last evaluation as a progress line."""
    last = points[-1]
    losses = f"L^con {format_loss(last.contrastive, 3)}, L^hard {format_loss(last.margin, 3)}"
    return f"{losses}, validation {last.validation:.4f}"
