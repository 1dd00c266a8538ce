"""Heads as methods: trained step by step, or solved for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from darklode.pipeline.train.closed_form import RIDGES, STEPS, solutions
from darklode.pipeline.train.heads import Head, Layers, dense, layers_of, named
from darklode.pipeline.train.loop import Course, Tell, steady
from darklode.pipeline.train.methods import SHARES, OfTask
from darklode.pipeline.train.negatives import mine
from darklode.pipeline.train.stack import Trial
from darklode.pipeline.train.together import trainer
from darklode.pipeline.train.weights import Floats, Weights
from darklode.pipeline.train.whitening import POWERS, best_start, whitenings
from darklode.schemas.adaptation import AdaptSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.task import Questions, Task
    from darklode.pipeline.train.vectors import Base, Frozen


RATES = (3e-5, 1e-4, 3e-4)


class TrainedHead:
    """`linear` and `ffn`: a head on the base's vectors, in a loop of its own; see `Method`."""

    about = "learning rate"
    shares: Sequence[float] = SHARES

    def __init__(self, settings: AdaptSettings, base: Base) -> None:
        self._settings, self._base = settings, base
        self._start = OfTask(best_start)

    @property
    def tried(self) -> Sequence[float]:
        """The learning rates."""
        return self._settings.learning_rates or RATES

    def trained(self, task: Task, setting: float, seed: int, tell: Tell) -> Course:
        """See `Method`."""
        if self._base.start:
            return trainer()(Trial(task, setting, seed, tell, self._base.start.layers), self._settings)
        begins = self._settings.start == "whitened" and self._settings.method == "linear"
        weight = self._start(task) if begins else None
        start = None if weight is None else Head.mapping(weight).weights()
        return trainer()(Trial(task, setting, seed, tell, start, anchored=True), self._settings)

    def vectors(self, weights: Weights, share: float, asked: Questions) -> Floats:
        """See `Method`; no query is encoded again."""
        with steady(0):
            return _head(weights, share).vectors(asked)

    def searched(self, frozen: Frozen, _weights: Weights, _share: float) -> Frozen:
        """See `Method`."""
        return frozen

    def put_into(self, _loaded: Any, weights: Weights, share: float) -> Layers:
        """See `Method`; the base stays as it is."""
        return dense(_head(weights, share).weights())

    def alone(self, weights: Weights, share: float) -> dict[str, bytes]:
        """See `Method`."""
        from safetensors.numpy import save

        tensors = {name: np.ascontiguousarray(one) for name, one in named(self.put_into(None, weights, share)).items()}
        about = {"between": "GELU", "input": "unit vector", "output": "to be normalised"}
        about["base"] = self._base.identity["encoder"]
        # Several keys would come in any order.
        return {"adapter.safetensors": save(tensors, metadata={"darklode": json.dumps(about, sort_keys=True)})}


def _head(weights: Weights, share: float) -> Head:
    return Head.of(Head.of(layers_of(weights)).weights(share))


class ClosedForm(TrainedHead):
    """`closed_form`: one linear layer for each ridge, all of one factorisation; see `Method`."""

    about = "ridge"
    shares = STEPS

    def __init__(self, settings: AdaptSettings, base: Base) -> None:
        super().__init__(settings, base)
        self._solved = OfTask(self._solutions)

    @property
    def tried(self) -> Sequence[float]:
        """The ridges."""
        return RIDGES

    def trained(self, task: Task, setting: float, _seed: int, tell: Tell) -> Course:
        """See `Method`; nothing is drawn."""
        found = self._solved(task)[setting]
        tell(self._settings.steps, "solved")
        return Course(best=named(found))

    def _solutions(self, task: Task) -> dict[float, Layers]:
        with steady(0):
            return dict(solutions(task, mine(task, task.train.vectors, self._settings), self._settings))


class Whitened(TrainedHead):
    """`whitened`: one linear layer for each power of the covariance, without any label; see `Method`."""

    about = "power"

    def __init__(self, settings: AdaptSettings, base: Base) -> None:
        super().__init__(settings, base)
        self._maps = OfTask(lambda task: dict(whitenings(task)))

    @property
    def tried(self) -> Sequence[float]:
        """The powers."""
        return POWERS

    def trained(self, task: Task, setting: float, _seed: int, tell: Tell) -> Course:
        """See `Method`; nothing is drawn."""
        found = self._maps(task)[setting]
        tell(self._settings.steps, "solved")
        return Course(best=Head.mapping(found).state())
