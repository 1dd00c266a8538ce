"""The training loop of heads: query vectors in, one set of weights out, the best on validation.

Not sentence-transformers' trainer: what it does around a head's step costs more than the step does
(benchmarks/head_trainer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch

from darklode.pipeline.train.heads import LAYERS, Head, Layers
from darklode.pipeline.train.loss import away, info_nce
from darklode.pipeline.train.negatives import Negatives, mine
from darklode.pipeline.train.task import Labels, Task
from darklode.pipeline.train.vectors import Floats, Ints
from darklode.schemas.adaptation import AdaptSettings

LOOK = 50
"""Steps between two looks at the validation queries."""

FALLS = 3
"""So many falls of validation in a row while the loss falls, and a trial is stopped."""

LONGEST = 1.0
"""Of a step's gradient."""

Tell = Callable[[int, str], None]


@dataclass(frozen=True)
class Look:
    """A row of `training_log`."""

    step: int
    loss: float | None
    validation: float
    replaced: float | None
    judged: float
    short: float
    spread: float


@dataclass
class Course:
    """How a trial went.

    Attributes:
        looks: at the validation queries, in order.
        best: weights of the best of them.
        step: when they were had.
        stopped: why it ended early.
    """

    looks: list[Look] = field(default_factory=list)
    best: Layers = field(default_factory=list)
    step: int = 0
    stopped: str | None = None

    def add(self, look: Look, head: Head) -> None:
        """Keep a look, and the weights where it is the best so far."""
        if not self.looks or look.validation > max(one.validation for one in self.looks):
            self.best, self.step = head.weights(), look.step
        self.looks.append(look)
        if collapses(self.looks):
            self.stopped = f"validation fell {FALLS} times in a row while the loss fell"


def collapses(looks: list[Look]) -> bool:
    """Whether the last looks show falling validation at falling loss: what fixed negatives end in.

    Source: DevRev-Search, A.4, Figure 2.
    """
    last = looks[-FALLS - 1 :]
    losses = [one.loss for one in last[1:] if one.loss is not None]
    if len(last) <= FALLS or len(losses) < FALLS:
        return False
    falling = all(later.validation < sooner.validation for sooner, later in pairwise(last))
    return falling and losses[-1] < losses[0]


@contextmanager
def steady(seed: int) -> Iterator[None]:
    """One thread and one seed: the same sums in the same order, and the same draws."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def trained(task: Task, settings: AdaptSettings, rate: float, seed: int, tell: Tell) -> Course:
    """Train one head; a step reads query vectors and those of its candidates, and no text.

    Args:
        task: queries, positives and labels.
        settings: the loss, negatives and steps.
        rate: the highest learning rate; it falls to 0 along a cosine, without warm-up.
        seed: of all draws.
        tell: hears of each look: steps done, and what was seen.
    """
    with steady(seed):
        head, course = Head(task.frozen.dimensions, LAYERS[settings.method]), Course()
        optimiser = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps)
        batches, negatives, replaced, losses = _Batches(task, settings, seed), None, None, list[float]()
        for step in range(settings.steps + 1):
            if step % settings.refresh_steps == 0:
                found = mine(task, head.apply_to(task.train.vectors), settings)
                replaced = found.replaced(negatives) if negatives else None
                negatives = found
            assert negatives is not None
            if step % LOOK == 0 or step == settings.steps:
                look = _look(task, head, step, losses, (replaced, negatives))
                course.add(look, head)
                tell(step, f"loss {look.loss or 0:.3f}, validation {look.validation:.4f}, spread {look.spread:.3f}")
                losses = []
                if course.stopped or step == settings.steps:
                    break
            loss = _loss(task, head, batches.next(), negatives, settings, batches.draws)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(head.parameters(), LONGEST)
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
    return course


def _look(task: Task, head: Head, step: int, losses: list[float], mined: tuple[float | None, Negatives]) -> Look:
    replaced, negatives = mined
    return Look(
        step,
        float(np.mean(losses)) if losses else None,
        task.validation.reached(task.frozen, head.apply_to(task.validation.vectors)),
        replaced,
        negatives.judged_share,
        negatives.short,
        spread(head.apply_to(task.train.vectors)),
    )


def spread(vectors: Floats) -> float:
    """1 − mean cosine of two different unit vectors; 0 where all are one."""
    n = len(vectors)
    if n < 2:
        return 0.0
    whole = vectors.astype(np.float64).sum(axis=0)
    return float(1 - (whole @ whole - n) / (n * (n - 1)))


class _Batches:
    """Whose turn it is: all queries, or all pairs, in a new order in each round."""

    def __init__(self, task: Task, settings: AdaptSettings, seed: int) -> None:
        self.draws = np.random.default_rng(seed)
        self._batch, self._waiting = settings.batch, np.empty(0, np.int64)
        queries, self._starts, self._counts = np.unique(task.pair_query, return_index=True, return_counts=True)
        self._turns = len(queries) if settings.pairs == "one" else len(task.pair_query)
        self._one = settings.pairs == "one"

    def next(self) -> Ints:
        """Pairs of the next batch."""
        while len(self._waiting) < min(self._batch, self._turns):
            self._waiting = np.concatenate([self._waiting, self.draws.permutation(self._turns)])
        turns, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
        if not self._one:
            return turns
        return self._starts[turns] + self.draws.integers(0, self._counts[turns])


def _loss(
    task: Task, head: Head, pairs: Ints, negatives: Negatives, settings: AdaptSettings, draws: np.random.Generator
) -> torch.Tensor:
    query, right = task.pair_query[pairs], task.pair_position[pairs]
    places = draws.permuted(np.tile(np.arange(settings.negatives), (len(pairs), 1)), axis=1)[:, : settings.draw]
    wrong = np.take_along_axis(negatives.positions[pairs], places, axis=1)
    candidates = np.concatenate([right, wrong.reshape(-1)])
    base = torch.from_numpy(task.train.vectors[query])
    vectors = torch.from_numpy(task.frozen.take(np.maximum(candidates, 0)))
    allowed = torch.from_numpy(allow(task.known, query, candidates, in_batch=settings.in_batch))
    adapted = head(base)
    loss = info_nce(adapted, vectors, torch.arange(len(pairs)), allowed, settings.temperature)
    return loss + settings.anchor * away(adapted, base)


def allow(
    known: Labels, query: Ints, candidates: Ints, *, in_batch: bool
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Which candidates count for which query of a batch, shape (n_queries, n_candidates).

    Args:
        known: all positives of the queries: none of them is a negative.
        query: of each row.
        candidates: positions of the rows' positives, then of each row's own negatives, -1 where one lacks.
        in_batch: whether those of other rows count.
    """
    n = len(query)
    own = np.zeros((n, len(candidates)), bool)
    own[:, n:] = np.repeat(np.eye(n, dtype=bool), (len(candidates) - n) // n, axis=1)
    counts = np.ones_like(own) if in_batch else own
    counts = counts & (candidates >= 0)[None, :] & ~known.have(query[:, None], candidates[None, :])
    counts[np.arange(n), np.arange(n)] = True
    return counts
