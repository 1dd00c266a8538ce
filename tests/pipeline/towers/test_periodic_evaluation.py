"""When it is looked, what the looks are told, and which weights are kept."""

from dataclasses import dataclass

import numpy as np
import torch

from darklode.pipeline.towers.checkpoint import Checkpoints, NoCheckpoints
from darklode.pipeline.towers.periodic_evaluation import TrainingMonitor
from darklode.pipeline.train.types import Weights

WORTH = {0: 1.0, 3: 3.0, 6: 3.0, 9: 2.0, 10: 0.0}


@dataclass(frozen=True)
class Look:
    step: int
    means: tuple[float | None, float | None]
    quality: float


class Learner:
    """Its weights are how often it was stepped."""

    steps = 0

    def state(self) -> Weights:
        return {"steps": np.array([self.steps], np.float32)}

    def restore(self, weights: Weights) -> None:
        self.steps = int(weights["steps"].item())


class Watching(TrainingMonitor[Look]):
    def evaluate(self, step: int, first: float | None, second: float | None) -> tuple[Look, str]:
        return Look(step, (first, second), WORTH[step]), f"at {step}"


def test_the_first_of_the_best_looks_is_kept() -> None:
    learner, told = Learner(), list[tuple[int, str]]()
    watch = Watching(10, 3, Checkpoints(NoCheckpoints(), learner), lambda step, said: told.append((step, said)))
    while watch.evaluate_step(learner.steps):
        watch.losses.append(torch.tensor([float(learner.steps), 1.0]))
        learner.steps += 1
    course = watch.course
    assert [look.step for look in course.eval_points] == [0, 3, 6, 9, 10], "and at the last step"
    assert [look.means for look in course.eval_points] == [(None, None), (1.0, 1.0), (4.0, 1.0), (7.0, 1.0), (9.0, 1.0)]
    assert (course.step, course.last_eval, course.best_weights["steps"].item()) == (3, course.eval_points[1], 3.0)
    assert told == [(step, f"at {step}") for step in WORTH]
