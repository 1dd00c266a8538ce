"""Trains many heads at once as one batched problem; each head gets exactly the weights it would get alone.

A head is the small network after the frozen encoder that adapts query vectors. The sentence-transformers trainer is
not used for heads, because its overhead per step exceeds the step itself: with 16 queries per step it makes 235 steps
per processor second, this loop 563.
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
from darklode.pipeline.train.fit.heads import N_LAYERS, Head, name_tensors
from darklode.pipeline.train.fit.loss import batch_loss
from darklode.pipeline.train.fit.trial import MAX_GRAD_NORM, TrainingHistory
from darklode.pipeline.train.types import Layers, OnStep, Weights
from darklode.schemas.adaptation import AdaptSettings

Kind = TypeVar("Kind", bound=np.generic)

MAX_STACK_BYTES = 1 << 26
"""Maximum bytes (64 MiB) of weights, gradients and optimizer moments trained at once; activations take a small multiple
of it. More would use more memory; the results would not change.
"""


@dataclass(frozen=True)
class StackedTrial:
    """One head to train.

    Attributes:
        task: queries, positives and labels.
        rate: peak learning rate; it decays to 0 along a cosine, without warm-up.
        seed: seed of everything that the trial draws.
        on_step: progress callback.
        start: initial layers; None: a head that changes no vector (the base).
        anchored: whether the loss penalizes the distance to the initial head's vectors instead of the base vectors.
    """

    task: Task
    rate: float
    seed: int
    on_step: OnStep
    start: Layers | None = None
    anchored: bool = False


def train_stacked(trials: Sequence[StackedTrial], settings: AdaptSettings) -> list[TrainingHistory[EvalPoint]]:
    """Train one head per trial and return the histories in the order of the trials.

    A step reads vectors only, no text. Trials do not influence each other: they share neither data nor random numbers
    nor floating-point sums.

    Args:
        trials: the heads to train; their vectors have equal length.
        settings: loss, negatives and number of steps.
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
    """Return how many heads fit into `MAX_STACK_BYTES`."""
    d = max((trial.task.frozen.dimensions for trial in trials), default=1)
    n_parameters = N_LAYERS[settings.method] * (d * d + d)
    # 4 bytes per float32, and 4 values per parameter: weight, gradient and AdamW's two moments.
    return max(1, MAX_STACK_BYTES // (4 * 4 * n_parameters))


def _blocks(shapes: Sequence[tuple[float, int]], max_size: int) -> list[list[int]]:
    """Group the trials with equal learning rate and batch size into blocks of at most `max_size` trial numbers.

    Only equal shapes are batched, because a matrix product of another shape may sum in another order and round
    differently.
    """
    blocks = []
    for shape in sorted(set(shapes)):
        same_shape = [n for n, trial_shape in enumerate(shapes) if trial_shape == shape]
        blocks += [same_shape[start : start + max_size] for start in range(0, len(same_shape), max_size)]
    return blocks


def _train_block(
    stacked: Sequence[StackedTrial], samplers: Sequence[PairSampler], settings: AdaptSettings
) -> list[TrainingHistory[EvalPoint]]:
    """Train the heads of one block until every trial has stopped; see `_blocks` for what they have in common."""
    stack = HeadStack(stacked[0].task.frozen.dimensions, N_LAYERS[settings.method], [trial.start for trial in stacked])
    anchors = [None if trial.anchored else trial.task.train.vectors for trial in stacked]
    trials = [
        AdaptationTrial(trial.task, settings, trial.seed, StackSlice(stack, n), trial.on_step, anchors[n])
        for n, trial in enumerate(stacked)
    ]
    optimizer = torch.optim.AdamW(stack.parameters(), lr=stacked[0].rate, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.n_steps)
    step = 0
    batches: dict[int, Batch] = {}
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
    """Stack one batch per head along a new first dimension; all have the same shape."""
    targets = [batch.target for batch in batches if batch.target is not None]
    weights = [batch.weight for batch in batches if batch.weight is not None]
    return Batch(
        base=_stack([batch.base for batch in batches]),
        anchor=_stack([batch.anchor for batch in batches]),
        candidates=_stack([batch.candidates for batch in batches]),
        allowed=_stack([batch.allowed for batch in batches]),
        target=_stack(targets) if targets else None,
        weight=_stack(weights) if weights else None,
    )


def _stack(arrays: Sequence[NDArray[Kind]]) -> NDArray[Kind]:
    """Stack arrays of equal shape; a single array is not copied."""
    return np.stack(arrays) if len(arrays) > 1 else arrays[0][None]


def _clip_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Clip each head's gradient norm to `MAX_GRAD_NORM`, in place.

    torch's `clip_grad_norm_` would clip the norm over all heads, so that heads would influence each other.

    Args:
        parameters: stacked parameters; the first dimension is the head.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    squared_norms = [torch.linalg.vector_norm(gradient.flatten(1), dim=1).double().square() for gradient in gradients]
    norms = sum(squared_norms[1:], squared_norms[0]).sqrt()
    scales = (MAX_GRAD_NORM / (norms + 1e-6)).clamp(max=1.0).float()  # 1e-6 as in torch: no division by zero
    for gradient in gradients:
        gradient.mul_(scales.view(-1, 1, 1))


class HeadStack(nn.Module):
    """Several heads with stacked parameters; each gives the same vectors as a single `Head` with its weights.

    Args:
        dimensions: length of a vector.
        layers: number of layers per head.
        starts: initial layers of each head; None: a head that changes no vector.
    """

    def __init__(self, dimensions: int, layers: int, starts: Sequence[Layers | None]) -> None:
        super().__init__()
        base_layers = Head(dimensions, layers).weights()
        layers_by_head = [base_layers if start is None else start for start in starts]
        self._weights = nn.ParameterList(
            [_stack_parameters([head_layers[n][0] for head_layers in layers_by_head]) for n in range(layers)]
        )
        self._biases = nn.ParameterList(
            [_stack_parameters([head_layers[n][1][None] for head_layers in layers_by_head]) for n in range(layers)]
        )

    def forward(self, vectors: Tensor) -> Tensor:
        """Adapt base vectors: unit vectors of shape (n_heads, n_queries, dimensions), as the input."""
        hidden = vectors
        for number, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            hidden = torch.baddbmm(bias, functional.gelu(hidden) if number else hidden, weight.mT)
        return functional.normalize(vectors + hidden, dim=-1)

    def layers(self, index: int) -> Layers:
        """Copy one head's layers as (weight, bias) pairs."""
        pairs = zip(self._weights, self._biases, strict=True)
        return [(w[index].detach().numpy().copy(), b[index, 0].detach().numpy().copy()) for w, b in pairs]


def _stack_parameters(values: Sequence[Floats]) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(np.stack(values)))


@dataclass(frozen=True)
class StackSlice:
    """One head of a stack, seen as a model of its own by `AdaptationTrial`.

    Attributes:
        stack: the heads.
        index: number of the head in the stack.
    """

    stack: HeadStack
    index: int

    def vectors(self, queries: QuerySet) -> Floats:
        """Adapt the base vectors of queries with the current weights."""
        return Head.from_layers(self.stack.layers(self.index)).apply_to(queries.vectors)

    def state(self) -> Weights:
        """Copy the head's weights by name."""
        return name_tensors(self.stack.layers(self.index))
