"""When a trial evaluates, what an evaluation receives, and which weights are kept."""

from dataclasses import dataclass

import numpy as np
import torch

from darklode.pipeline.train.fit.trial import EarlyStopping, KeepBestWeights, ReportProgress, Trial
from darklode.pipeline.train.types import Weights

WORTH = {0: 1.0, 3: 3.0, 6: 3.0, 9: 2.0, 10: 0.0}


@dataclass(frozen=True)
class Point:
    step: int
    means: tuple[float | None, float | None]
    quality: float


class Model:
    """Its weights are how often it was stepped."""

    steps = 0

    def state(self) -> Weights:
        return {"steps": np.array([self.steps], np.float32)}


class CountingTrial(Trial[Point]):
    def evaluate(self, step: int) -> Point:
        first, second = self.mean_losses(2)
        return Point(step, (first, second), WORTH[step])


def run(trial: CountingTrial, model: Model) -> None:
    while trial.after_step(model.steps):
        trial.losses.append(torch.tensor([float(model.steps), 1.0]))
        model.steps += 1


def test_the_first_of_the_best_evaluations_is_kept() -> None:
    model, lines = Model(), list[tuple[int, str]]()
    report = ReportProgress(lambda step, line: lines.append((step, line)), lambda points: f"at {points[-1].step}")
    trial = CountingTrial(10, 3, model, [KeepBestWeights(), report])
    run(trial, model)
    history = trial.history
    assert [point.step for point in history.eval_points] == [0, 3, 6, 9, 10], "and at the last step"
    means = [point.means for point in history.eval_points]
    assert means == [(None, None), (1.0, 1.0), (4.0, 1.0), (7.0, 1.0), (9.0, 1.0)]
    best = (history.step, history.best_point, history.best_weights["steps"].item())
    assert best == (3, history.eval_points[1], 3.0)
    assert lines == [(step, f"at {step}") for step in WORTH]


def test_the_last_weights_are_kept_and_nothing_stops_early_if_asked_for() -> None:
    model = Model()
    trial = CountingTrial(10, 3, model, [KeepBestWeights(), EarlyStopping(lambda _: "at once")], keep_last=True)
    run(trial, model)
    assert (trial.history.step, trial.history.best_weights["steps"].item(), trial.history.stopped) == (10, 10.0, None)
    stopped = CountingTrial(10, 3, model, [KeepBestWeights(), EarlyStopping(lambda _: "at once")])
    assert not stopped.after_step(0)


def test_a_step_that_was_evaluated_before_a_restart_is_not_evaluated_again() -> None:
    model = Model()
    trial = CountingTrial(10, 3, model, [KeepBestWeights()])
    trial.history.eval_points = [Point(3, (None, None), 3.0)]
    assert not trial.is_evaluation_due(3)
    assert trial.is_evaluation_due(6)
