"""One distilled query tower for all tests here."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from darklode.flows.jobs.train_towers import hand_over, steps
from darklode.flows.runs import write_inputs, write_run
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.towers.stage import DISTIL_STAGE
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.schemas.run_inputs import BenchmarkInputs, TowersInputs
from darklode.schemas.settings import Settings
from darklode.schemas.towers import DistillSettings
from helpers.adapted import base_for, build_to_adapt, model_in, settings_for, word
from helpers.tiny_bert import tiny_bert

QUICK = DistillSettings(student_layers=1, max_steps=60, batch_size=16, learning_rates=(3e-3,), eval_queries=20)
MORE = 300
"""Queries of a file."""


@dataclass(frozen=True)
class Distilled:
    """A build, the index's encoder, and where all stages are complete and the student is saved."""

    root: Path
    source: Run
    base: BaseEncoder
    pair: TeacherPair
    files: list[str]
    settings: Settings
    out: Run

    def steps(self) -> list[Step]:
        return steps(self.base, self.pair, self.files, self.settings)


def deep_model(root: Path) -> Path:
    """A BERT of four layers with weights at random."""
    return (
        root / "model"
        if (root / "model").exists()
        else tiny_bert(root / "model", num_hidden_layers=4, initializer_range=0.3)
    )


def redo(these: list[Step], out: Run, told: Callable[[str], None] = lambda _: None) -> list[str]:
    """Run the stages that do not stand; returns their names."""
    done = []
    for step in these:
        if not (plan := step.plan(out)).is_up_to_date:
            out.execute(
                plan, step.execute, (lambda _d, _t, note: told(note)) if step.stage is DISTIL_STAGE else lambda *_: None
            )
            done.append(step.stage.name)
    return done


@pytest.fixture(scope="session")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> Distilled:
    """Nobody writes to it."""
    root = tmp_path_factory.mktemp("distilled")
    source = build_to_adapt(root / "run")
    deep_model(root)
    asked = [f"{word(2000 + 3 * number)} {word(5000 + 7 * number)}" for number in range(MORE)]
    (root / "more.txt").write_text("\n".join(asked))
    base = base_for(source, root=root)
    settings = settings_for(root).model_copy(update={"distill": QUICK})
    pair = TeacherPair(base.encoder, settings.cache, None, 1)  # type: ignore[arg-type]
    found = Distilled(root, source, base, pair, [str(root / "more.txt")], settings, Run(str(root / "student")))
    distil_into(found.out, found, pair)
    return found


def distil_into(out: Run, distilled: Distilled, pair: TeacherPair) -> None:
    """Distil a student of a pair and save it."""
    redo(steps(distilled.base, pair, distilled.files, distilled.settings), out)
    hand_over(out, distilled.base, pair, distilled.settings, [distilled.source.store.url])


def copy_index(student: Path, distilled: Distilled, folder: Path) -> Path:
    """A copy of the student's index, which has the teacher among its encoders; the student names it as its run."""
    index = Path(shutil.copytree(distilled.source.store.url, folder))
    encoders = {"tiny": model_in(distilled.root).model_dump(mode="json")}
    settings = Settings(cache=distilled.settings.cache, encoders=encoders)
    write_run(Run(str(index)), BenchmarkInputs(docs="docs", queries="queries"), settings)
    write_inputs(Run(str(student)), TowersInputs(runs=[str(index)], encoder="tiny"))
    return index
