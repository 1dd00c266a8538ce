"""Training of a cross-encoder with sentence-transformers' `CrossEncoderTrainer`, evaluated on held-out pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from darklode.pipeline.reranker.model import TrainableReranker
from darklode.pipeline.reranker.pairs import SoftPairs
from darklode.pipeline.towers.checkpoint import Checkpoints, CheckpointStore, NoCheckpoints
from darklode.pipeline.towers.distillation import adamw, schedule
from darklode.pipeline.train.fit import library_trainer
from darklode.pipeline.train.fit.batches import ShuffledRows
from darklode.pipeline.train.fit.progress import format_loss
from darklode.pipeline.train.fit.trial import (
    EarlyStopping,
    KeepBestWeights,
    ReportProgress,
    TrainingHistory,
    Trial,
    TrialCallback,
)
from darklode.pipeline.train.types import OnStep
from darklode.schemas.reranker import RerankerSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Doubles, Ints

N_EVALUATIONS = 5
"""Evaluations per trial, besides the one before the first step."""

PATIENCE = 3
"""Evaluations without a new best one after which a trial ends."""


class ScoredValidation(Protocol):
    """Held-out pairs, and how good a model's scores of them are: `CandidateLists`, or a teacher's labels."""

    def pairs(self) -> tuple[list[str], list[str]]:
        """Query and text of each pair."""
        ...

    def best_weight(self, scores: Doubles) -> tuple[float, float]:
        """The best weight of these scores, beside the candidates' own (1 without any), and the quality with it.

        Args:
            scores: of the pairs, shape (n_pairs,).
        """
        ...


@dataclass(frozen=True)
class RerankerEval:
    """A row of `reranker_log`; validation and weight are None for an initial model that is no reranker."""

    step: int
    loss: float | None
    validation: float | None
    weight: float | None

    @property
    def quality(self) -> float:
        """The validation's result, 0 to 1; a head that was never trained is worse than any, also than one with 0."""
        return -1.0 if self.validation is None else self.validation


def train_reranker(  # noqa: PLR0913, PLR0917 (model, data, settings and callbacks)
    pairs: SoftPairs,
    validation: ScoredValidation,
    reranker: TrainableReranker,
    settings: RerankerSettings,
    rate: float,
    seed: int,
    on_step: OnStep,
    checkpoint_store: CheckpointStore | None = None,
    *,
    score_initial: bool = True,
) -> TrainingHistory[RerankerEval]:
    """Train a cross-encoder on pairs with AdamW, linear warm-up and decay; the best evaluation's weights are kept.

    Args:
        pairs: training pairs with soft targets and weights.
        validation: held-out pairs.
        reranker: trained in place.
        settings: number of steps and batch size.
        rate: peak learning rate.
        seed: seed of the order of pairs.
        on_step: progress callback.
        checkpoint_store: continues from its checkpoint; None: no checkpoints.
        score_initial: evaluate the model before the first step; not useful for a new head.
    """
    optimizer = adamw(reranker.parameters(), rate)
    rates = schedule(optimizer, settings.max_steps)
    checkpoints = Checkpoints(checkpoint_store or NoCheckpoints(), reranker, (optimizer, rates))
    callbacks: list[TrialCallback] = [
        KeepBestWeights(),
        EarlyStopping(stopping_reason),
        checkpoints,
        ReportProgress(on_step, format_reranker),
    ]
    trial = RerankerTrial(validation, settings.max_steps, reranker, callbacks, score_initial=score_initial)
    trial.first_step = checkpoints.resume(trial.history, RerankerEval)
    batches = ShuffledRows(len(pairs), settings.batch_size, seed)
    batches.skip(trial.first_step)
    training = library_trainer.LibraryTraining(
        n_rows=len(pairs),
        collator=PairCollator(pairs, reranker),
        loss=WeightedCrossEntropy(reranker, pairs, trial.losses),
        batches=batches,
        batch_setting="reranker.batch_size",
        optimizer=optimizer,
        schedule=rates,
        seed=seed,
        model_class="CrossEncoder",
    )
    library_trainer.fit(reranker.loaded, trial, training)
    return trial.history


def stopping_reason(points: Sequence[RerankerEval]) -> str | None:
    """Why a trial ends early: the last `PATIENCE` evaluations have no new best one; None if it continues."""
    qualities = [point.quality for point in points]
    best = int(np.argmax(qualities))
    if len(points) - 1 - best < PATIENCE:
        return None
    return f"no gain on validation in {PATIENCE} evaluations after step {points[best].step}"


class RerankerTrial(Trial[RerankerEval]):
    """Evaluates nDCG@10 of the validation lists, reranked with the best weight."""

    def __init__(
        self,
        validation: ScoredValidation,
        steps: int,
        reranker: TrainableReranker,
        callbacks: Sequence[TrialCallback],
        *,
        score_initial: bool,
    ) -> None:
        super().__init__(steps, max(1, steps // N_EVALUATIONS), reranker, callbacks)
        self._validation, self._reranker, self._score_initial = validation, reranker, score_initial
        self._pairs = validation.pairs()

    def evaluate(self, step: int) -> RerankerEval:
        (loss,) = self.mean_losses(1)
        if not step and not self._score_initial:
            return RerankerEval(step, loss, None, None)
        weight, value = self._validation.best_weight(self._reranker.scores(*self._pairs))
        return RerankerEval(step, loss, value, weight)


def format_reranker(points: Sequence[RerankerEval]) -> str:
    """The last evaluation as a progress line."""
    latest = points[-1]
    validation = "–" if latest.validation is None else f"{latest.validation:.4f} at weight {latest.weight:g}"
    return f"loss {format_loss(latest.loss, 4)}, validation {validation}"


class PairCollator:
    """Collates row numbers into tokenized pairs and the row numbers themselves (`label`)."""

    valid_label_columns = ("label",)

    def __init__(self, pairs: SoftPairs, reranker: TrainableReranker) -> None:
        self._pairs, self._reranker = pairs, reranker

    def __call__(self, rows: list[dict[str, int]]) -> dict[str, Any]:
        numbers: Ints = np.array([row["label"] for row in rows], np.int64)
        features = self._reranker.features(self._pairs.queries_at(numbers), self._pairs.texts_at(numbers))
        return {"pairs": features, "label": torch.from_numpy(numbers)}


class WeightedCrossEntropy(nn.Module):
    """Binary cross-entropy with soft targets, each pair times its weight, in float32.

    The library's `BinaryCrossEntropyLoss` has no weights of pairs.

    Args:
        reranker: the model.
        pairs: targets and weights.
        losses: receives the loss of each step, for the history.
    """

    def __init__(self, reranker: TrainableReranker, pairs: SoftPairs, losses: list[Tensor]) -> None:
        super().__init__()
        self.model, self._reranker, self._pairs, self._losses = reranker.loaded, reranker, pairs, losses

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor, **_: Any) -> Tensor:
        """Loss of a batch; `labels` are rows of the pairs."""
        with library_trainer.mixed_precision(labels.device):
            logits = self._reranker.logits(features[0])
        rows = labels.cpu().numpy()
        target, weight = (
            torch.from_numpy(values[rows].astype(np.float32)).to(logits.device)
            for values in (self._pairs.target, self._pairs.weight)
        )
        with torch.autocast(logits.device.type, enabled=False):
            loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), target, weight=weight)
        self._losses.append(library_trainer.mean_over_processes(loss.detach()[None].clone()))
        return loss
