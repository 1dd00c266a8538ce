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
from darklode.pipeline.towers.dual.loss import ContrastiveBatch, contrastive, hard
from darklode.pipeline.towers.dual.towers import DualTowers
from darklode.pipeline.towers.dual.triplet_batches import Stream, allowed_pairs
from darklode.pipeline.towers.periodic_evaluation import MonitorHistory, Tell, TrainingMonitor, format_loss
from darklode.pipeline.train.fit import library_trainer
from darklode.schemas.towers import DualSettings

LOOKS = 10
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


@dataclass(frozen=True)
class DualTrial:
    """Settings of a trial.

    Attributes:
        rate: peak learning rate; linear warm-up over a tenth of the steps, then linear decay to 0.
        temperature: τ.
        seed: of the order of triplets.
    """

    rate: float
    temperature: float
    seed: int


def train_towers(  # noqa: PLR0913, PLR0917 (what learns, from what, how, and who is told)
    stream: Stream,
    sample: ValidationSample,
    towers: DualTowers,
    dual: DualSettings,
    trial: DualTrial,
    tell: Tell,
    checkpoint_store: CheckpointStore | None = None,
) -> MonitorHistory[DualEval]:
    """Train both towers with the trainer of sentence-transformers.

    Under torchrun each process encodes its share of every batch, and in-batch negatives are gathered over all
    processes; the
    steps equal those of a single process.

    Args:
        stream: the triplets.
        sample: for evaluation.
        towers: trained in place.
        dual: views, losses and steps.
        trial: rate, τ and seed.
        tell: progress callback, receives steps done and a message.
        checkpoint_store: continues from its checkpoint; None: no checkpoints.
    """
    if dual.gradient_checkpointing:
        towers.checkpoint()
    optimiser = adamw(towers.parameters(), trial.rate)
    rates = schedule(optimiser, dual.max_steps)
    watch = _DualMonitor(
        sample, towers, dual, tell, Checkpoints(checkpoint_store or NoCheckpoints(), towers, (optimiser, rates))
    )
    done = watch.resume(DualEval)
    stream.skip(done)
    training = library_trainer.Training(
        stream.slots,
        DualCollator(stream, towers),
        DualLoss(towers.model, stream, dual, trial.temperature, watch.losses),
        lambda step: watch.evaluate_step(done + step),
        optimiser,
        rates,
    )
    steps = library_trainer.BatchSteps(dual.max_steps - done, stream, "dual.batch_size", trial.seed, dual.report_to)
    library_trainer.fit(towers.model, steps, training)
    return watch.course


class DualCollator:
    """Tokenizes the queries and documents of a batch, by slot."""

    valid_label_columns = ("label",)

    def __init__(self, stream: Stream, towers: DualTowers) -> None:
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
        self, model: Any, stream: Stream, dual: DualSettings, temperature: float, losses: list[Tensor]
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
                hard(batch, self._dual.matryoshka_dims, self._dual.triplet_margin),
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
    that
    DistributedDataParallel takes is then the gradient of the whole batch.
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
    own = values.clone()
    if own.requires_grad:
        own.register_hook(lambda gradient: gradient * count)  # type: ignore[no-untyped-call]
    gathered_parts[processes.get_rank()] = own
    return torch.cat(gathered_parts, dim)


class _DualMonitor(TrainingMonitor[DualEval]):
    """Evaluates how high validation queries rank their positives."""

    def __init__(
        self, sample: ValidationSample, towers: DualTowers, dual: DualSettings, tell: Tell, checkpoints: Checkpoints
    ) -> None:
        super().__init__(dual.max_steps, LOOKS, checkpoints, tell)
        self._sample, self._towers = sample, towers

    def evaluate(self, step: int, first: float | None, second: float | None) -> tuple[DualEval, str]:
        validation_score = self._sample.score(self._towers)
        message = f"L^con {format_loss(first, 3)}, L^hard {format_loss(second, 3)}, validation {validation_score:.4f}"
        return DualEval(step, first, second, validation_score), message
