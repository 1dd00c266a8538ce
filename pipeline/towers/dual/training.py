"""Joint training of the query and document towers on triplets, evaluated on validation queries."""

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
"""Evaluations per trial, in addition to the one before the first step."""


@dataclass(frozen=True)
class DualEval:
    """An evaluation, written as a row of `dual_log`.

    Attributes:
        step: number of steps done.
        contrastive: mean contrastive loss since the last evaluation; None before the first step.
        margin: mean margin loss since the last evaluation; None before the first step.
        validation: mean reciprocal rank on the validation sample.
    """

    step: int
    contrastive: float | None
    margin: float | None
    validation: float

    @property
    def quality(self) -> float:
        """The value that selects the best weights; higher is better."""
        return self.validation


@dataclass(frozen=True)
class ValidationSample:
    """The validation queries and texts that training is evaluated on.

    Attributes:
        queries: validation queries.
        texts: their positives and random other texts.
        is_positive: whether each text is a positive of each query, shape (n_queries, n_texts).
    """

    queries: Sequence[str]
    texts: Sequence[str]
    is_positive: NDArray[np.bool_]

    def score(self, towers: DualTowers) -> float:
        """Mean reciprocal rank of each query's best positive; other texts with the same score rank before it."""
        scores = towers.encode(self.queries, queries=True) @ towers.encode(self.texts, queries=False).T
        best_positive_scores = np.where(self.is_positive, scores, -np.inf).max(axis=1, keepdims=True)
        ranks = 1 + ((scores >= best_positive_scores) & ~self.is_positive).sum(axis=1)
        return float((1 / ranks).mean())


def train_towers(  # noqa: PLR0913, PLR0917 (model, data, settings and callbacks)
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
    processes; each step equals the step that a single process would make.

    Args:
        stream: batches of training triplets.
        sample: validation queries and texts for the evaluations.
        towers: the model; trained in place.
        dual: views, losses and number of steps.
        trial_settings: learning rate, τ and seed.
        on_step: progress callback.
        checkpoint_store: training continues from the checkpoint it has; None: no checkpoints are read or written.
    """
    if dual.gradient_checkpointing:
        towers.enable_gradient_checkpointing()
    optimizer = adamw(towers.parameters(), trial_settings.rate)
    lr_schedule = schedule(optimizer, dual.max_steps)
    checkpoints = Checkpoints(checkpoint_store or NoCheckpoints(), towers, (optimizer, lr_schedule))
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
        schedule=lr_schedule,
        seed=trial_settings.seed,
        report_to=dual.report_to,
    )
    library_trainer.fit(towers.model, trial, training)
    return trial.history


class DualCollator:
    """Collates slots of a `TripletStream` into tokenized queries (`query_…`) and documents (`document_…`).

    The documents are the positives of the batch followed by its hard negatives, which `DualLoss` relies on.
    """

    valid_label_columns = ("label",)

    def __init__(self, stream: TripletStream, towers: DualTowers) -> None:
        self._stream = stream
        self._towers = towers

    def __call__(self, rows: list[dict[str, int]]) -> dict[str, Tensor]:
        slots = [row["label"] for row in rows]
        batch = self._stream.rows(slots)
        query_features = self._towers.query_features(_column_values(batch, "query"))
        document_features = self._towers.document_features(
            [*_column_values(batch, "title"), *_column_values(batch, "negative_title")],
            [*_column_values(batch, "content"), *_column_values(batch, "negative_content")],
        )
        return (
            {f"query_{name}": tensor for name, tensor in query_features.items()}
            | {f"document_{name}": tensor for name, tensor in document_features.items()}
            | {"label": torch.tensor(slots)}
        )


def _column_values(batch: pa.Table, column: str) -> list[Any]:
    values: list[Any] = batch[column].to_pylist()
    return values


class DualLoss(nn.Module):
    """L^con + α L^hard (ScalingNote, Eq. 12) over the batches of all processes, computed in float32.

    Args:
        model: the `TwoTowerModel`, wrapped as a sentence-transformers model.
        stream: gives the rows of a batch, which decide who is a negative of whom, and their weights.
        dual: Matryoshka dimensions, margin and α.
        temperature: τ.
        losses: receives both losses of each step, for the history.
    """

    def __init__(
        self, model: Any, stream: TripletStream, dual: DualSettings, temperature: float, losses: list[Tensor]
    ) -> None:
        super().__init__()
        self.model = model
        self._stream = stream
        self._dual = dual
        self._temperature = temperature
        self._losses = losses

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Compute the loss of a batch.

        Args:
            features: tokenized queries and tokenized documents.
            labels: slots of the batch in the stream.
        """
        with library_trainer.mixed_precision(labels.device):
            queries, documents, has_view = self.model(tuple(features))
        with torch.autocast(queries.device.type, enabled=False):
            batch = self._gather_batch(queries.float(), documents.float(), has_view, labels)
            contrastive_loss = contrastive(batch, self._dual.matryoshka_dims, self._temperature)
            margin_loss = hard_margin(batch, self._dual.matryoshka_dims, self._dual.triplet_margin)
        self._losses.append(torch.stack([contrastive_loss.detach(), margin_loss.detach()]))
        return contrastive_loss + self._dual.margin_loss_weight * margin_loss

    def _gather_batch(self, queries: Tensor, documents: Tensor, has_view: Tensor, labels: Tensor) -> ContrastiveBatch:
        """Gather the vectors of all processes; the first n documents are positives, the others hard negatives."""
        n = len(queries)
        slots = gather(labels).tolist()
        rows = self._stream.rows(slots)
        allowed = torch.from_numpy(allowed_pairs(rows)).to(queries.device)
        weight = torch.from_numpy(self._stream.relative_weights(rows)).to(queries.device)
        positives, negatives, positive_has_view, negative_has_view = (
            gather(tensor, 1) for tensor in (documents[:, :n], documents[:, n:], has_view[:, :n], has_view[:, n:])
        )
        return ContrastiveBatch(
            gather(queries), positives, negatives, positive_has_view, negative_has_view, weight, allowed
        )


def gather(values: Tensor, dim: int = 0) -> Tensor:
    """Concatenate the values of all processes along `dim`; returns the input if there is one process only.

    Gradients flow to the process's own values only, because `all_gather` has no gradient. They are multiplied by the
    number of processes: DistributedDataParallel divides by it again, which leaves the gradient of the whole batch.
    """
    if not processes.is_initialized():
        return values
    n_processes = processes.get_world_size()
    sent_values = values.detach().contiguous()
    if not sent_values.is_floating_point():
        sent_values = sent_values.to(torch.int64)  # the gloo backend does not support booleans
    received = [torch.empty_like(sent_values) for _ in range(n_processes)]
    processes.all_gather(received, sent_values)
    values_by_process = [tensor.to(values.dtype) for tensor in received]
    own_values = values.clone()
    if own_values.requires_grad:
        own_values.register_hook(lambda gradient: gradient * n_processes)  # type: ignore[no-untyped-call]
    values_by_process[processes.get_rank()] = own_values
    return torch.cat(values_by_process, dim)


class DualTrial(Trial[DualEval]):
    """Evaluates the mean reciprocal rank of the validation sample and keeps the best weights."""

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
        self._sample = sample
        self._towers = towers

    def evaluate(self, step: int) -> DualEval:
        """Score the towers, with the mean losses since the last evaluation."""
        mean_contrastive, mean_margin = self.mean_losses(2)
        return DualEval(step, mean_contrastive, mean_margin, self._sample.score(self._towers))


def format_dual(points: Sequence[DualEval]) -> str:
    """Format the last evaluation as a progress line."""
    latest = points[-1]
    losses = f"L^con {format_loss(latest.contrastive, 3)}, L^hard {format_loss(latest.margin, 3)}"
    return f"{losses}, validation {latest.validation:.4f}"
