"""A trial whose process is killed goes on from its last checkpoint, and ends with the bytes of one that was not."""

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.towers import checkpoint
from darklode.pipeline.towers.checkpoint import Checkpoints, NoCheckpoints
from darklode.pipeline.towers.stage import DISTIL_STAGE
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.pipeline.train.types import Weights
from helpers.environment import with_paths

from .conftest import Distilled

KILLED = """
import os, signal, sys
from pathlib import Path
from darklode.flows.jobs.train_towers import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.towers import checkpoint
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.towers.stage import DISTIL_STAGE
from darklode.schemas.towers import DistillSettings
from helpers.adapted import base_for, settings_for

root, source, out, file, towers = sys.argv[1:]
base = base_for(Run(source), root=Path(root))
settings = settings_for(Path(root)).model_copy(update={"distill": DistillSettings.model_validate_json(towers)})
checkpoint.MIN_SECONDS = 0.0

def told(done, total, note):
    if done == 30 and "held-out" in note:
        os.kill(os.getpid(), signal.SIGKILL)

for step in steps(base, TeacherPair(base.encoder, settings.cache, None, 1), [file], settings):
    Run(out).execute(step.plan(Run(out)), step.execute, told if step.stage is DISTIL_STAGE else lambda *_: None)
"""


@pytest.mark.slow
def test_a_killed_student_goes_on_and_is_the_same_to_the_byte(distilled: Distilled, tmp_path: Path) -> None:
    given = [distilled.root, distilled.source.store.url, tmp_path / "out", distilled.files[0]]
    command = [sys.executable, "-c", KILLED, *map(str, given), distilled.settings.distill.model_dump_json()]
    done = subprocess.run(command, env=with_paths(), capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    out, told = Run(str(tmp_path / "out")), list[int]()
    (step,) = [one for one in distilled.steps() if one.stage is DISTIL_STAGE]
    out.execute(step.plan(out), step.execute, lambda done, _, note: told.append(done) if "held-out" in note else None)
    assert told == list(range(33, 61, 3))
    for name in DISTIL_STAGE.writes:
        assert out.tables(name).content(name) == distilled.out.tables(name).content(name)
    assert not list((tmp_path / "out" / "progress").rglob("*.state"))


@dataclass(frozen=True)
class Look:
    step: int
    quality: float


class Learner:
    """One number, stepped by AdamW."""

    def __init__(self) -> None:
        self.number = torch.nn.Parameter(torch.ones(1))
        self.optimiser = torch.optim.AdamW([self.number], lr=0.1)
        self.rates = torch.optim.lr_scheduler.LambdaLR(self.optimiser, lambda step: 1 / (1 + step))

    def step(self) -> None:
        self.optimiser.zero_grad()
        (self.number**2).backward()
        self.optimiser.step()
        self.rates.step()

    def state(self) -> Weights:
        return {"number": self.number.detach().numpy().copy()}

    def restore(self, weights: Weights) -> None:
        with torch.no_grad():
            self.number.copy_(torch.from_numpy(weights["number"]))


class Memory:
    data: bytes | None = None

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: bytes) -> None:
        self.data = data


def checkpoints(memory: Memory | NoCheckpoints, learner: Learner) -> Checkpoints:
    return Checkpoints(memory, learner, (learner.optimiser, learner.rates))


def test_what_is_kept_is_all_that_a_next_step_hangs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MIN_SECONDS", 0.0)
    first, memory = Learner(), Memory()
    for _ in range(3):
        first.step()
    history = TrainingHistory([Look(0, 0.5), Look(3, 1.0)], {"number": np.array([2.0], np.float32)})
    checkpoints(memory, first).write(history)
    second, found = Learner(), TrainingHistory[Look]()
    assert checkpoints(memory, second).resume(found, Look) == 3
    assert (found.eval_points, found.best_weights) == (history.eval_points, history.best_weights)
    for _ in range(2):
        first.step()
        second.step()
    assert first.state()["number"].tobytes() == second.state()["number"].tobytes()


def test_a_checkpoint_waits_until_it_is_worth_its_price() -> None:
    memory, learner = Memory(), Learner()
    checkpoints(memory, learner).write(TrainingHistory([Look(0, 0.5)], learner.state()))
    assert memory.data is None
    assert checkpoints(memory, learner).resume(TrainingHistory[Look](), Look) == 0


def test_a_checkpoint_of_a_gpu_is_read_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimizer's moments are saved where they were; loading them there would need the same GPU."""
    monkeypatch.setattr(checkpoint, "MIN_SECONDS", 0.0)
    places: list[object] = []
    memory, learner, load = Memory(), Learner(), torch.load
    learner.step()
    checkpoints(memory, learner).write(TrainingHistory([Look(1, 0.5)], learner.state()))

    def loaded(*args: object, **options: object) -> object:
        places.append(options.get("map_location"))
        return load(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(torch, "load", loaded)
    checkpoints(memory, learner).resume(TrainingHistory[Look](), Look)
    assert places == ["cpu"]
