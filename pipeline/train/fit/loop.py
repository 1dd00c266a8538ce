"""The training loop around a step: mining, evaluation, batches, loss, early stopping; keeps the best weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from darklode.pipeline.train.data.dataset import Labels, Probabilities, QuerySet, Task
from darklode.pipeline.train.data.negatives import Negatives, mine_negatives
from darklode.pipeline.train.data.vectors import Floats, Ints, spans
from darklode.pipeline.train.fit.loss import divergence, info_nce, squared_shift
from darklode.pipeline.train.fit.progress import format_history
from darklode.pipeline.train.fit.weights import Weights
from darklode.schemas.adaptation import AdaptSettings

LOOK = 50
"""Steps between two evaluations."""

FALLS = 3
"""Consecutive falls of the validation score, with a falling loss, after which a trial is stopped."""

LONGEST = 1.0
"""Maximum gradient norm."""

Tell = Callable[[int, str], None]


@dataclass(frozen=True)
class EvalPoint:
    """A row of `training_log`."""

    step: int
    loss: float | None
    validation: float
    replaced: float | None
    judged: float
    short: float
    spread: float


@dataclass
class TrainingHistory:
    """History of one trial.

    Attributes:
        eval_points: evaluations, in order.
        best_weights: weights of the best evaluation.
        step: step of the best weights.
        stopped: why the trial ended early, if it did.
        is_complete: train to the last step and keep the last weights instead of the best.
    """

    eval_points: list[EvalPoint] = field(default_factory=list)
    best_weights: Weights = field(default_factory=dict)
    step: int = 0
    stopped: str | None = None
    is_complete: bool = False

    def add(self, look: EvalPoint, pupil: Model) -> None:
        """Add an evaluation, and keep the weights if it is the best so far."""
        if (
            self.is_complete
            or not self.eval_points
            or look.validation > max(point.validation for point in self.eval_points)
        ):
            self.best_weights, self.step = pupil.state(), look.step
        self.eval_points.append(look)
        if not self.is_complete and has_collapsed(self.eval_points):
            self.stopped = f"validation fell {FALLS} times in a row while the loss fell"


def has_collapsed(looks: list[EvalPoint]) -> bool:
    """Whether the last evaluations show a falling score at a falling loss, the typical end with fixed negatives.

    Source: DevRev-Search, A.4, Figure 2.
    """
    last = looks[-FALLS - 1 :]
    losses = [point.loss for point in last[1:] if point.loss is not None]
    if len(last) <= FALLS or len(losses) < FALLS:
        return False
    falling = all(later.validation < sooner.validation for sooner, later in pairwise(last))
    return falling and losses[-1] < losses[0]


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Run with one thread and one seed, so that sums and random draws are reproducible."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Model(Protocol):
    """A trainable model: a head on base vectors, or the encoder itself."""

    def vectors(self, queries: QuerySet) -> Floats:
        """Current unit vectors of queries, shape (n_queries, dimensions)."""

    def state(self) -> Weights:
        """Copies of the trained tensors by name."""


@dataclass(frozen=True)
class Batch:
    """Inputs of the loss for a batch; for stacked heads each array has one more leading dimension.

    Attributes:
        base: base vectors of the queries, shape (n_queries, dimensions).
        start: anchor vectors of the queries, same shape.
        candidates: vectors, each query's positive first, shape (n_candidates, dimensions).
        allowed: which candidates count for which query, shape (n_queries, n_candidates).
        aim: target distribution, rows sum to 1, same shape; None: the query's positive only.
    """

    base: Floats
    start: Floats
    candidates: Floats
    allowed: NDArray[np.bool_]
    aim: Floats | None


class TrainingLoop:
    """Everything around the steps of a trial: mining, evaluation, batches and the loss.

    Args:
        task: queries, positives and labels.
        settings: loss, negatives and steps.
        seed: of all random draws.
        pupil: the model whose vectors are used for mining and whose best weights are kept.
        tell: progress callback, receives steps done and a message.
        anchor: vectors that the train queries are held near; None: where the model starts.
    """

    def __init__(
        self, task: Task, settings: AdaptSettings, seed: int, pupil: Model, tell: Tell, anchor: Floats | None = None
    ) -> None:
        self.course, self.losses = TrainingHistory(is_complete=task.is_complete), list[torch.Tensor]()
        self.task, self.settings, self.pupil, self._tell = task, settings, pupil, tell
        self._draws = np.random.default_rng([seed, 1])
        self._negatives: Negatives | None = None
        self._start = anchor
        self._replaced: float | None = None

    def evaluate_step(self, step: int) -> bool:
        """Mine and evaluate if due after this many steps; returns whether another step follows."""
        if step % self.settings.refresh_steps == 0 and step < self.settings.max_steps:
            vectors = self.pupil.vectors(self.task.train)
            self._start = vectors if self._start is None else self._start
            negatives = mine_negatives(self.task, vectors, self.settings)
            self._replaced = negatives.share_replaced(self._negatives) if self._negatives else None
            self._negatives = negatives
        last = step == self.settings.max_steps
        if step % LOOK == 0 or last:
            look = self._look(step)
            self.course.add(look, self.pupil)
            self._tell(step, format_history(self.course.eval_points))
            self.losses = []
        return not last and self.course.stopped is None

    def _look(self, step: int) -> EvalPoint:
        assert self._negatives is not None
        vectors = self.pupil.vectors(self.task.validation)
        return EvalPoint(
            step,
            float(torch.stack(self.losses).mean()) if self.losses else None,
            self.task.validation.ndcg(self.task.frozen, vectors),
            self._replaced,
            self._negatives.judged_share,
            self._negatives.share_empty,
            vector_spread(vectors),
        )

    def candidates(self, pairs: Ints) -> Ints:
        """Positions of each pair's positive and of its drawn negatives; −1 is empty."""
        assert self._negatives is not None
        places = np.tile(np.arange(self.settings.num_negatives), (len(pairs), 1))
        places = self._draws.permuted(places, axis=1)[:, : self.settings.negatives_per_step]
        wrong = np.take_along_axis(self._negatives.positions[pairs], places, axis=1)
        return np.concatenate([self.task.pair_position[pairs], wrong.reshape(-1)])

    def turn(self, pairs: Ints, candidates: Ints) -> Batch:
        """The loss inputs for a batch of pairs."""
        assert self._start is not None
        task, settings, query = self.task, self.settings, self.task.pair_query[pairs]
        allowed = allowed_candidates(task.labels, query, candidates, in_batch=settings.in_batch_negatives)
        soft = settings.soft_targets and task.probabilities is not None
        aim = (
            target_distribution(task.probabilities, query, candidates, allowed) if soft and task.probabilities else None
        )
        vectors = task.frozen.take(np.maximum(candidates, 0))
        return Batch(task.train.vectors[query], self._start[query], vectors, allowed, aim)

    def loss(self, adapted: torch.Tensor, pairs: Ints, first: int = 0) -> torch.Tensor:
        """Loss of adapted query vectors against the candidates of the whole batch.

        Args:
            adapted: unit vectors, shape (n_queries, dimensions).
            pairs: of the batch.
            first: index in the batch of the first adapted vector; other processes may hold the others.
        """
        return batch_loss(adapted, self.turn(pairs, self.candidates(pairs)), self.settings, first).mean()


def batch_loss(
    adapted: torch.Tensor, turn: Batch, settings: AdaptSettings, first: int = 0, texts: torch.Tensor | None = None
) -> torch.Tensor:
    """Loss of each adapted unit vector, shape (..., n_queries, dimensions).

    Args:
        adapted: of all queries of a batch, or of a contiguous part.
        turn: the loss inputs.
        settings: of the loss.
        first: index in the batch of the first adapted vector.
        texts: candidate vectors if documents are trained, too; None: those of the inputs.
    """
    rows = slice(first, first + adapted.shape[-2])
    start, frozen = (
        torch.from_numpy(array).to(adapted.device) for array in (turn.start[..., rows, :], turn.candidates)
    )
    vectors = frozen if texts is None else texts
    counts = torch.from_numpy(turn.allowed[..., rows, :]).to(adapted.device)
    if turn.aim is not None:
        aim = torch.from_numpy(turn.aim[..., rows, :]).to(adapted.device)
        loss_value = divergence(adapted, vectors, aim, counts, settings.temperature)
    else:
        target = torch.arange(rows.start, rows.stop, device=adapted.device)
        loss_value = info_nce(adapted, vectors, target, counts, settings.temperature)
    return loss_value + settings.l2_to_base * squared_shift(adapted, start)


def vector_spread(vectors: Floats) -> float:
    """1 − mean cosine of two different unit vectors; 0 if all are equal."""
    n = len(vectors)
    if n < 2:
        return 0.0
    total = vectors.astype(np.float64).sum(axis=0)
    return float(1 - (total @ total - n) / (n * (n - 1)))


class BatchSampler:
    """Samples queries or pairs without replacement, reshuffled each epoch."""

    def __init__(self, task: Task, settings: AdaptSettings, seed: int) -> None:
        self._draws = np.random.default_rng([seed, 0])
        self._batch, self._waiting = settings.batch_size, np.empty(0, np.int64)
        queries, self._starts, self._counts = np.unique(task.pair_query, return_index=True, return_counts=True)
        self._turns = len(queries) if settings.positives_per_query == "one" else len(task.pair_query)
        self._one_pair_per_query, self.size = (
            settings.positives_per_query == "one",
            min(settings.batch_size, self._turns),
        )

    def next(self) -> Ints:
        """Pairs of the next batch."""
        while len(self._waiting) < self.size:
            self._waiting = np.concatenate([self._waiting, self._draws.permutation(self._turns)])
        turns, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
        if not self._one_pair_per_query:
            return turns
        return self._starts[turns] + self._draws.integers(0, self._counts[turns])


def allowed_candidates(
    labels: Labels, query: Ints, candidates: Ints, *, in_batch: bool
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Which candidates count for which query, shape (n_queries, n_candidates).

    Args:
        labels: all positives of the queries; a positive is never a negative.
        query: of each row.
        candidates: positions: the rows' positives, then each row's negatives; −1 is empty.
        in_batch: whether candidates of other rows count.
    """
    n = len(query)
    own = np.zeros((n, len(candidates)), bool)
    own[:, n:] = np.repeat(np.eye(n, dtype=bool), (len(candidates) - n) // n, axis=1)
    counts = np.ones_like(own) if in_batch else own
    counts = counts & (candidates >= 0)[None, :]
    counts[label_positions(labels, query, candidates)] = False
    counts[np.arange(n), np.arange(n)] = True
    return counts


def label_positions(labels: Labels, query: Ints, candidates: Ints) -> tuple[Ints, Ints]:
    """Rows and columns of candidates that are known positives of a query."""
    row, position = labels.positions(query)
    order = np.argsort(candidates, kind="stable")
    low, high = (np.searchsorted(candidates[order], position, side) for side in ("left", "right"))
    return np.repeat(row, high - low), order[spans(low, high)]


def target_distribution(
    probabilities: Probabilities, query: Ints, candidates: Ints, allowed: NDArray[np.bool_]
) -> Floats:
    """Judge probabilities of each query's candidates, normalized to 1; a positive without a probability counts as 1.

    Args:
        probabilities: of the judge.
        query: of each row.
        candidates: positions, each query's positive first; −1 is empty.
        allowed: shape (n_queries, n_candidates).
    """
    values = probabilities.look_up(query[:, None], np.maximum(candidates, 0)[None, :])
    rows = np.arange(len(query))
    values[rows, rows] = np.nan_to_num(values[rows, rows], nan=1.0)
    values = np.where(allowed, np.nan_to_num(values, nan=0.0), np.float32(0))
    return np.asarray(values / values.sum(axis=1, keepdims=True), np.float32)
