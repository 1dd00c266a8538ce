"""The trial of `adapt`: periodic mining of negatives, evaluation on validation queries, and batches for the loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.negatives import Negatives, mine_negatives
from darklode.pipeline.train.fit.batches import Batch, allowed_candidates, target_distribution
from darklode.pipeline.train.fit.eval_point import PATIENCE, EvalPoint, has_collapsed
from darklode.pipeline.train.fit.loss import batch_loss
from darklode.pipeline.train.fit.progress import format_history
from darklode.pipeline.train.fit.trial import (
    EarlyStopping,
    KeepBestWeights,
    ReportProgress,
    Trainable,
    Trial,
    TrialCallback,
)
from darklode.pipeline.train.types import OnStep
from darklode.schemas.adaptation import AdaptSettings

EVALUATION_STEPS = 50
"""Steps between two evaluations. Fewer find the best step more exactly, and take more time."""


class Model(Trainable, Protocol):
    """A trainable model: a head on base vectors, or the encoder itself."""

    def vectors(self, queries: QuerySet) -> Floats:
        """Current unit vectors of queries, shape (n_queries, dimensions)."""


class AdaptationTrial(Trial[EvalPoint]):
    """A trial on queries with frozen text vectors.

    Args:
        task: queries, positives and labels.
        settings: loss, negatives and steps.
        seed: seed of all random draws.
        model: the model in training; its vectors are used for mining and evaluation.
        on_step: progress callback.
        anchor: vectors that the train queries are held near; None: the model's initial vectors.
    """

    model: Model

    def __init__(
        self,
        task: Task,
        settings: AdaptSettings,
        seed: int,
        model: Model,
        on_step: OnStep,
        anchor: Floats | None = None,
    ) -> None:
        callbacks: list[TrialCallback] = [
            KeepBestWeights(),
            EarlyStopping(collapse_reason),
            ReportProgress(on_step, format_history),
        ]
        super().__init__(settings.n_steps, EVALUATION_STEPS, model, callbacks, keep_last=task.keep_last)
        self.task, self.settings = task, settings
        self._random = np.random.default_rng([seed, 1])  # a stream of its own: batches are drawn from [seed, 0]
        self._negatives: Negatives | None = None
        self._anchor = anchor
        self._weights = task.relative_weights(one_per_query=settings.positives_per_query == "one")
        self._replaced: float | None = None

    def prepare_step(self, step: int) -> None:
        """Mine negatives if due."""
        if step % self.settings.refresh_steps == 0 and step < self.steps:
            vectors = self.model.vectors(self.task.train)
            self._anchor = vectors if self._anchor is None else self._anchor
            negatives = mine_negatives(self.task, vectors, self.settings)
            self._replaced = negatives.share_replaced(self._negatives) if self._negatives else None
            self._negatives = negatives

    def evaluate(self, step: int) -> EvalPoint:
        assert self._negatives is not None
        vectors = self.model.vectors(self.task.validation)
        return EvalPoint(
            step=step,
            loss=float(torch.stack(self.losses).mean()) if self.losses else None,
            validation=self.task.validation.ndcg(self.task.frozen, vectors),
            replaced=self._replaced,
            judged=self._negatives.judged_share,
            short=self._negatives.share_empty,
            spread=vector_spread(vectors),
        )

    def candidates(self, pairs: Ints) -> Ints:
        """Positions of each pair's positive and of its drawn negatives; −1 is empty."""
        assert self._negatives is not None
        slots = np.tile(np.arange(self.settings.num_negatives), (len(pairs), 1))
        slots = self._random.permuted(slots, axis=1)[:, : self.settings.negatives_per_step]
        negatives = np.take_along_axis(self._negatives.positions[pairs], slots, axis=1)
        return np.concatenate([self.task.pair_position[pairs], negatives.reshape(-1)])

    def batch(self, pairs: Ints, candidates: Ints) -> Batch:
        """The loss inputs for some pairs."""
        assert self._anchor is not None
        task, settings, query = self.task, self.settings, self.task.pair_query[pairs]
        allowed = allowed_candidates(task.labels, query, candidates, in_batch=settings.in_batch_negatives)
        target = None
        if settings.targets == "soft" and task.probabilities:
            target = target_distribution(task.probabilities, query, candidates, allowed)
        vectors = task.frozen.take(np.maximum(candidates, 0))
        return Batch(task.train.vectors[query], self._anchor[query], vectors, allowed, target, self._weights[pairs])

    def loss(self, adapted: torch.Tensor, pairs: Ints, first: int = 0) -> torch.Tensor:
        """Loss of adapted query vectors against the candidates of the whole batch.

        Args:
            adapted: unit vectors, shape (n_queries, dimensions).
            pairs: numbers of the batch's training pairs.
            first: index in the batch of the first adapted vector; other processes may hold the others.
        """
        return batch_loss(adapted, self.batch(pairs, self.candidates(pairs)), self.settings, first).mean()


def collapse_reason(points: Sequence[EvalPoint]) -> str | None:
    """Why a trial with these evaluations should stop; None to continue."""
    return f"validation fell {PATIENCE} times in a row while the loss fell" if has_collapsed(points) else None


def vector_spread(vectors: Floats) -> float:
    """1 − mean cosine of two different unit vectors; 0 if all are equal."""
    n = len(vectors)
    if n < 2:
        return 0.0
    total = vectors.astype(np.float64).sum(axis=0)
    return float(1 - (total @ total - n) / (n * (n - 1)))
