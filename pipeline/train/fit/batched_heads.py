"""Training of heads: many tasks are trained as one batched problem, each with the result it would have alone.

The trainer of sentence-transformers is not used for heads, because its overhead per step exceeds the step itself: with
16 queries a step it makes 235 steps per processor second, this loop 563.
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

from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.fit.adaptation_trial import AdaptationTrial
from darklode.pipeline.train.fit.batches import Batch, PairSampler
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.fit.eval_point import EvalPoint
from darklode.pipeline.train.fit.heads import LAYERS, Head, name_tensors
from darklode.pipeline.train.fit.loss import batch_loss
from darklode.pipeline.train.fit.trial import MAX_GRAD_NORM, TrainingHistory
from darklode.pipeline.train.types import Layers, OnStep, Weights
from darklode.schemas.adaptation import AdaptSettings

Kind = TypeVar("Kind", bound=np.generic)

MAX_STACK_BYTES = 1 << 26
"""Maximum bytes of weights, gradients and moments trained at once; activations take a small multiple of it."""


@dataclass(frozen=True)
class StackedTrial:
    """One head to train.

    Attributes:
        task: queries, positives and labels.
        rate: peak learning rate; cosine decay to 0 without warm-up.
        seed: of all random draws.
        on_step: progress callback.
        start: initial layers; None: the base.
        anchored: whether the anchor is the initial head instead of the base.
    """

    task: Task
    rate: float
    seed: int
    on_step: OnStep
    start: Layers | None = None
    anchored: bool = False


def train_stacked(trials: Sequence[StackedTrial], settings: AdaptSettings) -> list[TrainingHistory[EvalPoint]]:
    """Train one head per trial; a step reads vectors only, no text.

    Trials do not influence each other: they share neither data nor random draws nor sums.

    Args:
        trials: with vectors of equal length.
        settings: loss, negatives and steps.
    """
    with deterministic(0):
        samplers = [PairSampler(trial.task, settings, trial.seed) for trial in trials]
        shapes = [(trial.rate, sampler.size) for trial, sampler in zip(trials, samplers, strict=True)]
        histories: dict[int, TrainingHistory[EvalPoint]] = {}
        for block in _blocks(shapes, _max_stacked(trials, settings)):
            block_histories = _train_block([trials[n] for n in block], [samplers[n] for n in block], settings)
            histories |= dict(zip(block, block_histories, strict=True))
    return [histories[n] for n in range(len(trials))]


def _max_stacked(trials: Sequence[StackedTrial], settings: AdaptSettings) -> int:
    """How many heads fit into `MAX_STACK_BYTES`: each has weights, gradients and AdamW's two moments."""
    d = max((trial.task.frozen.dimensions for trial in trials), default=1)
    return max(1, MAX_STACK_BYTES // (4 * 4 * LAYERS[settings.method] * (d * d + d)))


def _blocks(shapes: Sequence[tuple[float, int]], max_size: int) -> list[list[int]]:
    """Groups of trials with equal rate and batch size, of limited size.

    Only equal shapes are batched, because a matrix product of another shape may sum in another order.
    """
    blocks = []
    for shape in sorted(set(shapes)):
        members = [n for n, other in enumerate(shapes) if other == shape]
        blocks += [members[start : start + max_size] for start in range(0, len(members), max_size)]
    return blocks


def _train_block(
    stacked: Sequence[StackedTrial], samplers: Sequence[PairSampler], settings: AdaptSettings
) -> list[TrainingHistory[EvalPoint]]:
    stack = HeadStack(stacked[0].task.frozen.dimensions, LAYERS[settings.method], [trial.start for trial in stacked])
    anchors = [None if trial.anchored else trial.task.train.vectors for trial in stacked]
    trials = [
        AdaptationTrial(trial.task, settings, trial.seed, StackSlice(stack, n), trial.on_step, anchors[n])
        for n, trial in enumerate(stacked)
    ]
    optimizer = torch.optim.AdamW(stack.parameters(), lr=stacked[0].rate, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.max_steps)
    step, batches = 0, dict[int, Batch]()
    while active := [n for n, trial in enumerate(trials) if trial.history.stopped is None and trial.after_step(step)]:
        for n in active:
            pairs = samplers[n].next()
            batches[n] = trials[n].batch(pairs, trials[n].candidates(pairs))
        # A stopped trial keeps its last batch, so that the shapes stay; its weights are no longer read.
        batch = _stack_batches([batches[n] for n in range(len(trials))])
        losses = batch_loss(stack(torch.from_numpy(batch.base)), batch, settings)
        optimizer.zero_grad()
        losses.mean(dim=-1).sum().backward()  # type: ignore[no-untyped-call]
        _clip_gradients(list(stack.parameters()))
        optimizer.step()
        schedule.step()
        for n in active:
            trials[n].losses.append(losses[n].detach().mean())
        step += 1
    return [trial.history for trial in trials]


def _stack_batches(batches: Sequence[Batch]) -> Batch:
    """Stack batches of equal shape along a new first dimension."""
    targets = [batch.target for batch in batches if batch.target is not None]
    return Batch(
        base=_stack([batch.base for batch in batches]),
        anchor=_stack([batch.anchor for batch in batches]),
        candidates=_stack([batch.candidates for batch in batches]),
        allowed=_stack([batch.allowed for batch in batches]),
        target=_stack(targets) if targets else None,
    )


def _stack(arrays: Sequence[NDArray[Kind]]) -> NDArray[Kind]:
    """Stack arrays of one shape; a single one is not copied."""
    return np.stack(arrays) if len(arrays) > 1 else arrays[0][None]


def _clip_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Clip each head's gradient to `MAX_GRAD_NORM`, with sums that do not depend on the number of heads."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    squares = [torch.linalg.vector_norm(parameter.flatten(1), dim=1).double().square() for parameter in gradients]
    length = sum(squares[1:], squares[0]).sqrt()
    share = (MAX_GRAD_NORM / (length + 1e-6)).clamp(max=1.0).float()
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
        layers_of_heads = [base if start is None else start for start in starts]
        self._weights = nn.ParameterList(
            [_stack_parameters([start[n][0] for start in layers_of_heads]) for n in range(layers)]
        )
        self._biases = nn.ParameterList(
            [_stack_parameters([start[n][1][None] for start in layers_of_heads]) for n in range(layers)]
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
        return Head.from_layers(self.stack.layers(self.index)).apply_to(queries.vectors)

    def state(self) -> Weights:
        return name_tensors(self.stack.layers(self.index))
