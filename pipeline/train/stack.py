"""The loop of heads: those of many tasks are trained as one problem, each as if it were alone.

Heads are not trained by sentence-transformers' trainer: what it does around a head's step costs more than the step does
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

from darklode.pipeline.train.heads import LAYERS, Head, Layers, named
from darklode.pipeline.train.loop import LONGEST, Batches, Course, Lesson, Tell, Turn, steady, weigh
from darklode.pipeline.train.task import Questions, Task
from darklode.pipeline.train.vectors import Floats
from darklode.pipeline.train.weights import Weights
from darklode.schemas.adaptation import AdaptSettings

Kind = TypeVar("Kind", bound=np.generic)

TOGETHER = 1 << 26
"""Bytes of weights, gradients and moments that are trained at once; what a step computes is some times as much."""


@dataclass(frozen=True)
class Trial:
    """A head to be trained.

    Attributes:
        task: queries, positives and labels.
        rate: the highest learning rate; it falls to 0 along a cosine, without warm-up.
        seed: of all draws.
        tell: hears of each look: steps done, and what was seen.
        start: layers that it begins with; None: the base.
        anchored: whether the anchor is what it begins with, not the base.
    """

    task: Task
    rate: float
    seed: int
    tell: Tell
    start: Layers | None = None
    anchored: bool = False


def trained(trials: Sequence[Trial], settings: AdaptSettings) -> list[Course]:
    """Train a head for each trial; a step reads query vectors and those of its candidates, and no text.

    What comes of a trial does not depend on the others: they share neither data nor draws nor sums.

    Args:
        trials: whose vectors are of one length.
        settings: the loss, negatives and steps.
    """
    with steady(0):
        batches = [Batches(one.task, settings, one.seed) for one in trials]
        found: dict[int, Course] = {}
        for places in _blocks(
            [(one.rate, turns.size) for one, turns in zip(trials, batches, strict=True)], _most(trials, settings)
        ):
            courses = _block([trials[n] for n in places], [batches[n] for n in places], settings)
            found |= dict(zip(places, courses, strict=True))
    return [found[n] for n in range(len(trials))]


def _most(trials: Sequence[Trial], settings: AdaptSettings) -> int:
    """How many heads fit `TOGETHER`: each has weights, their gradients and AdamW's two moments."""
    d = max((one.task.frozen.dimensions for one in trials), default=1)
    return max(1, TOGETHER // (4 * 4 * LAYERS[settings.method] * (d * d + d)))


def _blocks(alike: Sequence[tuple[float, int]], most: int) -> list[list[int]]:
    """Places of equal rates and batches, at most so many at once: a matrix of another shape may have other sums."""
    found = []
    for one in sorted(set(alike)):
        mine = [n for n, other in enumerate(alike) if other == one]
        found += [mine[start : start + most] for start in range(0, len(mine), most)]
    return found


def _block(trials: Sequence[Trial], batches: Sequence[Batches], settings: AdaptSettings) -> list[Course]:
    stack = Stack(trials[0].task.frozen.dimensions, LAYERS[settings.method], [one.start for one in trials])
    anchors = [None if one.anchored else one.task.train.vectors for one in trials]
    lessons = [
        Lesson(one.task, settings, one.seed, Place(stack, n), one.tell, anchors[n]) for n, one in enumerate(trials)
    ]
    optimiser = torch.optim.AdamW(stack.parameters(), lr=trials[0].rate, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps)
    step, turns = 0, dict[int, Turn]()
    while going := [n for n, one in enumerate(lessons) if one.course.stopped is None and one.goes_on(step)]:
        for n in going:
            pairs = batches[n].next()
            turns[n] = lessons[n].turn(pairs, lessons[n].candidates(pairs))
        turn = _together([turns[n] for n in range(len(lessons))])
        losses = weigh(stack(torch.from_numpy(turn.base)), turn, settings)
        optimiser.zero_grad()
        losses.mean(dim=-1).sum().backward()  # type: ignore[no-untyped-call]
        _cut(list(stack.parameters()))
        optimiser.step()
        schedule.step()
        for n in going:
            lessons[n].losses.append(losses[n].detach().mean())
        step += 1
    return [one.course for one in lessons]


def _together(turns: Sequence[Turn]) -> Turn:
    """Turns of equal shapes as one, with a first dimension more."""
    aims = [one.aim for one in turns if one.aim is not None]
    return Turn(
        _stack([one.base for one in turns]),
        _stack([one.start for one in turns]),
        _stack([one.candidates for one in turns]),
        _stack([one.allowed for one in turns]),
        _stack(aims) if aims else None,
    )


def _stack(arrays: Sequence[NDArray[Kind]]) -> NDArray[Kind]:
    """Arrays of one shape side by side; a single one is not copied."""
    return np.stack(arrays) if len(arrays) > 1 else arrays[0][None]


def _cut(parameters: Sequence[nn.Parameter]) -> None:
    """Each head's gradient cut to `LONGEST`; sums that do not depend on how many heads there are."""
    gradients = [one.grad for one in parameters if one.grad is not None]
    squares = [torch.linalg.vector_norm(one.flatten(1), dim=1).double().square() for one in gradients]
    length = sum(squares[1:], squares[0]).sqrt()
    share = (LONGEST / (length + 1e-6)).clamp(max=1.0).float()
    for one in gradients:
        one.mul_(share.view(-1, 1, 1))


class Stack(nn.Module):
    """Heads side by side, each as `Head` has it; all begin as the base, or as they are told.

    Args:
        dimensions: of a vector.
        layers: of a head.
        starts: of each head the layers that it begins with; None: the base.
    """

    def __init__(self, dimensions: int, layers: int, starts: Sequence[Layers | None]) -> None:
        super().__init__()
        base = Head(dimensions, layers).weights()
        every = [base if one is None else one for one in starts]
        self._weights = nn.ParameterList([_stacked([one[n][0] for one in every]) for n in range(layers)])
        self._biases = nn.ParameterList([_stacked([one[n][1][None] for one in every]) for n in range(layers)])

    def forward(self, vectors: Tensor) -> Tensor:
        """Adapted unit vectors, shape (n_heads, n_queries, dimensions) as the given ones."""
        found = vectors
        for number, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            found = torch.baddbmm(bias, functional.gelu(found) if number else found, weight.mT)
        return functional.normalize(vectors + found, dim=-1)

    def layers(self, place: int) -> Layers:
        """Copies of a head's weights."""
        pairs = zip(self._weights, self._biases, strict=True)
        return [(w[place].detach().numpy().copy(), b[place, 0].detach().numpy().copy()) for w, b in pairs]


def _stacked(values: Sequence[Floats]) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(np.stack(values)))


@dataclass(frozen=True)
class Place:
    """A head of a stack, as what learns; see `Pupil`."""

    stack: Stack
    place: int

    def vectors(self, asked: Questions) -> Floats:
        """See `Pupil`."""
        return Head.of(self.stack.layers(self.place)).vectors(asked)

    def state(self) -> Weights:
        """See `Pupil`."""
        return named(self.stack.layers(self.place))
