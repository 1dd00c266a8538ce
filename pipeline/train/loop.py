"""How a trial goes: what happens around its steps, whoever takes them; the best weights on validation are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from darklode.pipeline.train.loss import divergence, info_nce, squared_shift
from darklode.pipeline.train.negatives import Negatives, mine_negatives
from darklode.pipeline.train.task import Labels, Probabilities, QuerySet, Task
from darklode.pipeline.train.telling import format_history
from darklode.pipeline.train.vectors import Floats, Ints, spans
from darklode.pipeline.train.weights import Weights
from darklode.schemas.adaptation import AdaptSettings

LOOK = 50
"""Steps between two looks at the validation queries."""

FALLS = 3
"""So many falls of validation in a row while the loss falls, and a trial is stopped."""

LONGEST = 1.0
"""Of a step's gradient."""

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
    """How a trial went.

    Attributes:
        eval_points: at the validation queries, in order.
        best_weights: weights of the best of them.
        step: when they were had.
        stopped: why it ended early.
        is_complete: it goes to its last step, and the last weights are kept in the place of the best.
    """

    eval_points: list[EvalPoint] = field(default_factory=list)
    best_weights: Weights = field(default_factory=dict)
    step: int = 0
    stopped: str | None = None
    is_complete: bool = False

    def add(self, look: EvalPoint, pupil: Model) -> None:
        """Keep a look, and the weights where it is the best so far."""
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
    """Whether the last looks show falling validation at falling loss: what fixed negatives end in.

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
    """One thread and one seed: the same sums in the same order, and the same draws."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Model(Protocol):
    """What learns: a head on the base's vectors, or the encoder itself."""

    def vectors(self, queries: QuerySet) -> Floats:
        """Unit vectors of queries as it encodes them now, shape (n_queries, dimensions)."""

    def state(self) -> Weights:
        """Copies of what it trains, by name."""


@dataclass(frozen=True)
class Batch:
    """What the queries of a step are to tell apart; of several heads at once all have a first dimension more.

    Attributes:
        base: the queries' vectors by the base, shape (n_queries, dimensions).
        start: where the anchor holds them, of the same shape.
        candidates: vectors, first of each query's positive, shape (n_candidates, dimensions).
        allowed: which count for which query, shape (n_queries, n_candidates).
        aim: rows that sum to 1, of the same shape; None: each query's positive alone.
    """

    base: Floats
    start: Floats
    candidates: Floats
    allowed: NDArray[np.bool_]
    aim: Floats | None


class TrainingLoop:
    """What a trial does around its steps, whoever takes them: mines, looks, draws batches and weighs answers.

    Args:
        task: queries, positives and labels.
        settings: the loss, negatives and steps.
        seed: of all draws.
        pupil: whose vectors negatives are mined with, and whose best weights are kept.
        tell: hears of each look: steps done, and what was seen.
        anchor: where the train queries' vectors are held; None: where the pupil begins.
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
        """Mine and look where it is time to, so many steps having been taken; whether another one follows."""
        if step % self.settings.refresh_steps == 0 and step < self.settings.steps:
            vectors = self.pupil.vectors(self.task.train)
            self._start = vectors if self._start is None else self._start
            negatives = mine_negatives(self.task, vectors, self.settings)
            self._replaced = negatives.share_replaced(self._negatives) if self._negatives else None
            self._negatives = negatives
        last = step == self.settings.steps
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
        """Positions of the positives of a batch's pairs, then of each one's negatives, which are drawn; -1: none."""
        assert self._negatives is not None
        places = np.tile(np.arange(self.settings.negatives), (len(pairs), 1))
        places = self._draws.permuted(places, axis=1)[:, : self.settings.draw]
        wrong = np.take_along_axis(self._negatives.positions[pairs], places, axis=1)
        return np.concatenate([self.task.pair_position[pairs], wrong.reshape(-1)])

    def turn(self, pairs: Ints, candidates: Ints) -> Batch:
        """What the queries of a batch's pairs are to tell apart."""
        assert self._start is not None
        task, settings, query = self.task, self.settings, self.task.pair_query[pairs]
        allowed = allowed_candidates(task.labels, query, candidates, in_batch=settings.in_batch)
        soft = settings.soft_targets and task.probabilities is not None
        aim = (
            target_distribution(task.probabilities, query, candidates, allowed) if soft and task.probabilities else None
        )
        vectors = task.frozen.take(np.maximum(candidates, 0))
        return Batch(task.train.vectors[query], self._start[query], vectors, allowed, aim)

    def loss(self, adapted: torch.Tensor, pairs: Ints, first: int = 0) -> torch.Tensor:
        """The loss of adapted query vectors, among the candidates of a whole batch.

        Args:
            adapted: unit vectors, shape (n_queries, dimensions).
            pairs: of the batch.
            first: place in the batch of the first adapted vector; another process may hold the others.
        """
        return batch_loss(adapted, self.turn(pairs, self.candidates(pairs)), self.settings, first).mean()


def batch_loss(
    adapted: torch.Tensor, turn: Batch, settings: AdaptSettings, first: int = 0, texts: torch.Tensor | None = None
) -> torch.Tensor:
    """The loss of each of the adapted unit vectors, which are of shape (…, n_queries, dimensions).

    Args:
        adapted: of a batch's queries, or of some that stand together.
        turn: what they are to tell apart.
        settings: the loss.
        first: place in the batch of the first adapted vector.
        texts: the candidates' vectors where they learn, too; None: those of the turn.
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
    return loss_value + settings.anchor * squared_shift(adapted, start)


def vector_spread(vectors: Floats) -> float:
    """1 − mean cosine of two different unit vectors; 0 where all are one."""
    n = len(vectors)
    if n < 2:
        return 0.0
    total = vectors.astype(np.float64).sum(axis=0)
    return float(1 - (total @ total - n) / (n * (n - 1)))


class BatchSampler:
    """Whose turn it is: all queries, or all pairs, in a new order in each round."""

    def __init__(self, task: Task, settings: AdaptSettings, seed: int) -> None:
        self._draws = np.random.default_rng([seed, 0])
        self._batch, self._waiting = settings.batch, np.empty(0, np.int64)
        queries, self._starts, self._counts = np.unique(task.pair_query, return_index=True, return_counts=True)
        self._turns = len(queries) if settings.pairs == "one" else len(task.pair_query)
        self._one_pair_per_query, self.size = settings.pairs == "one", min(settings.batch, self._turns)

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
    """Which candidates count for which query of a batch, shape (n_queries, n_candidates).

    Args:
        labels: all positives of the queries: none of them is a negative.
        query: of each row.
        candidates: positions of the rows' positives, then of each row's own negatives, -1 where one lacks.
        in_batch: whether those of other rows count.
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
    """Rows and columns of the candidates that are known positives of a query."""
    row, position = labels.positions(query)
    order = np.argsort(candidates, kind="stable")
    low, high = (np.searchsorted(candidates[order], position, side) for side in ("left", "right"))
    return np.repeat(row, high - low), order[spans(low, high)]


def target_distribution(
    probabilities: Probabilities, query: Ints, candidates: Ints, allowed: NDArray[np.bool_]
) -> Floats:
    """The judge's probabilities of each query's candidates, which sum to 1; a positive that has none counts 1.

    Args:
        probabilities: what the judge said.
        query: of each row.
        candidates: positions, first of each query's positive; -1 where one lacks.
        allowed: which count, shape (n_queries, n_candidates).
    """
    values = probabilities.look_up(query[:, None], np.maximum(candidates, 0)[None, :])
    rows = np.arange(len(query))
    values[rows, rows] = np.nan_to_num(values[rows, rows], nan=1.0)
    values = np.where(allowed, np.nan_to_num(values, nan=0.0), np.float32(0))
    return np.asarray(values / values.sum(axis=1, keepdims=True), np.float32)
