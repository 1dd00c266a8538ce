"""Training of heads: many tasks are trained as one batched problem, each with the result it would have alone.

The trainer of sentence-transformers is not used for heads, because its overhead per step exceeds the step itself
(benchmarks/head_trainer.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.vectors import Floats
from darklode.pipeline.train.fit.heads import LAYERS, Head, Layers, name_tensors
from darklode.pipeline.train.fit.loop import (
    LONGEST,
    Batch,
    BatchSampler,
    Tell,
    TrainingHistory,
    TrainingLoop,
    batch_loss,
    deterministic,
)
from darklode.pipeline.train.fit.weights import Weights
from darklode.schemas.adaptation import AdaptSettings

Kind = TypeVar("Kind", bound=np.generic)

TOGETHER = 1 << 26
"""Maximum bytes of weights, gradients and moments trained at once; activations take a small multiple of it."""


@dataclass(frozen=True)
class StackedTrial:
    """One head to train.

    Attributes:
        task: queries, positives and labels.
        rate: peak learning rate; cosine decay to 0 without warm-up.
        seed: of all random draws.
        tell: progress callback, receives steps done and a message.
        start: initial layers; None: the base.
        anchored: whether the anchor is the initial head instead of the base.
    """

    task: Task
    rate: float
    seed: int
    tell: Tell
    start: Layers | None = None
    anchored: bool = False


def train_stacked(trials: Sequence[StackedTrial], settings: AdaptSettings) -> list[TrainingHistory]:
    """Train one head per trial; a step reads vectors only, no text.

    Trials do not influence each other: they share neither data nor random draws nor sums.

    Args:
        trials: with vectors of equal length.
        settings: loss, negatives and steps.
    """
    with deterministic(0):
        batches = [BatchSampler(trial.task, settings, trial.seed) for trial in trials]
        histories: dict[int, TrainingHistory] = {}
        for places in _blocks(
            [(trial.rate, turns.size) for trial, turns in zip(trials, batches, strict=True)],
            _max_stacked(trials, settings),
        ):
            courses = _train_block([trials[n] for n in places], [batches[n] for n in places], settings)
            histories |= dict(zip(places, courses, strict=True))
    return [histories[n] for n in range(len(trials))]


def _max_stacked(trials: Sequence[StackedTrial], settings: AdaptSettings) -> int:
    """How many heads fit into `TOGETHER`: each has weights, gradients and AdamW's two moments."""
    d = max((trial.task.frozen.dimensions for trial in trials), default=1)
    return max(1, TOGETHER // (4 * 4 * LAYERS[settings.method] * (d * d + d)))


def _blocks(alike: Sequence[tuple[float, int]], max_size: int) -> list[list[int]]:
    """Groups of trials with equal rate and batch size, of limited size. Only equal shapes are batched, because a matrix
    product
    of another shape may sum in another order.
    """
    blocks = []
    for key in sorted(set(alike)):
        members = [n for n, other in enumerate(alike) if other == key]
        blocks += [members[start : start + max_size] for start in range(0, len(members), max_size)]
    return blocks


def _train_block(
    trials: Sequence[StackedTrial], batches: Sequence[BatchSampler], settings: AdaptSettings
) -> list[TrainingHistory]:
    stack = HeadStack(trials[0].task.frozen.dimensions, LAYERS[settings.method], [trial.start for trial in trials])
    anchors = [None if trial.anchored else trial.task.train.vectors for trial in trials]
    lessons = [
        TrainingLoop(trial.task, settings, trial.seed, StackSlice(stack, n), trial.tell, anchors[n])
        for n, trial in enumerate(trials)
    ]
    optimiser = torch.optim.AdamW(stack.parameters(), lr=trials[0].rate, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.max_steps)
    step, turns = 0, dict[int, Batch]()
    while going := [n for n, trial in enumerate(lessons) if trial.course.stopped is None and trial.evaluate_step(step)]:
        for n in going:
            pairs = batches[n].next()
            turns[n] = lessons[n].turn(pairs, lessons[n].candidates(pairs))
        turn = _step_together([turns[n] for n in range(len(lessons))])
        losses = batch_loss(stack(torch.from_numpy(turn.base)), turn, settings)
        optimiser.zero_grad()
        losses.mean(dim=-1).sum().backward()  # type: ignore[no-untyped-call]
        _clip_gradients(list(stack.parameters()))
        optimiser.step()
        schedule.step()
        for n in going:
            lessons[n].losses.append(losses[n].detach().mean())
        step += 1
    return [trial.course for trial in lessons]


def _step_together(turns: Sequence[Batch]) -> Batch:
    """Stack batches of equal shape along a new first dimension."""
    aims = [batch.aim for batch in turns if batch.aim is not None]
    return Batch(
        _stack([batch.base for batch in turns]),
        _stack([batch.start for batch in turns]),
        _stack([batch.candidates for batch in turns]),
        _stack([batch.allowed for batch in turns]),
        _stack(aims) if aims else None,
    )


def _stack(arrays: Sequence[NDArray[Kind]]) -> NDArray[Kind]:
    """Stack arrays of one shape; a single one is not copied."""
    return np.stack(arrays) if len(arrays) > 1 else arrays[0][None]


def _clip_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Clip each head's gradient to `LONGEST`, with sums that do not depend on the number of heads."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    squares = [torch.linalg.vector_norm(parameter.flatten(1), dim=1).double().square() for parameter in gradients]
    length = sum(squares[1:], squares[0]).sqrt()
    share = (LONGEST / (length + 1e-6)).clamp(max=1.0).float()
    for parameter in gradients:
        parameter.mul_(share.view(-1, 1, 1))


class HeadStack(nn.Module):
    """Heads side by side, each equal to a `Head`.

    Args:
        dimensions: of a vector.
        layers: per head.
        starts: initial layers of each head; None: the base.
    """

    def __init__(self, dimensions: int, layers: int, starts: Sequence[Layers | None]) -> None:
        super().__init__()
        base = Head(dimensions, layers).weights()
        every = [base if start is None else start for start in starts]
        self._weights = nn.ParameterList([_stack_parameters([start[n][0] for start in every]) for n in range(layers)])
        self._biases = nn.ParameterList(
            [_stack_parameters([start[n][1][None] for start in every]) for n in range(layers)]
        )

    def forward(self, vectors: Tensor) -> Tensor:
        """Adapted unit vectors, shape (n_heads, n_queries, dimensions)."""
        hidden = vectors
        for number, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            hidden = torch.baddbmm(bias, functional.gelu(hidden) if number else hidden, weight.mT)
        return functional.normalize(vectors + hidden, dim=-1)

    def layers(self, index: int) -> Layers:
        """Copies of one head's weights."""
        pairs = zip(self._weights, self._biases, strict=True)
        return [(w[index].detach().numpy().copy(), b[index, 0].detach().numpy().copy()) for w, b in pairs]


def _stack_parameters(values: Sequence[Floats]) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(np.stack(values)))


@dataclass(frozen=True)
class StackSlice:
    """One head of a stack as a trainable model."""

    stack: HeadStack
    index: int

    def vectors(self, queries: QuerySet) -> Floats:
        return Head.from_layers(self.stack.layers(self.index)).vectors(queries)

    def state(self) -> Weights:
        return name_tensors(self.stack.layers(self.index))
