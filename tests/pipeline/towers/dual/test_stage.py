"""The trials: each is kept with its weights, a killed one goes on, and the best one graduates."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from darklode.flows.jobs.train_both_towers import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.towers.dual.stage import DUAL_TRIALS_STAGE, best_towers, validation_sample_of
from darklode.pipeline.train.fit.determinism import deterministic
from helpers.environment import with_paths
from helpers.runs import put, read

from .conftest import QUICK, Trained


def test_each_trial_stands_with_its_looks_and_weights(both: Trained) -> None:
    trials, looks = read(both.out, "dual_trials"), read(both.out, "dual_log")
    assert [(row["learning_rate"], row["temperature"]) for row in trials] == [(1e-2, 0.05), (1e-3, 0.05)]
    for row in trials:
        mine = [look for look in looks if look["trial"] == row["trial"]]
        assert [look["step"] for look in mine] == list(range(0, 21, 2))
        assert row["validation"] == max(look["validation"] for look in mine)  # type: ignore[type-var]
        assert mine[0]["contrastive"] is None
    assert looks[10]["contrastive"] < looks[1]["contrastive"]  # type: ignore[operator]


def test_the_best_trial_graduates(both: Trained) -> None:
    tables = both.out.tables()
    best = max(read(both.out, "dual_trials"), key=lambda row: row["validation"])  # type: ignore[arg-type, return-value]
    with deterministic(0):
        towers = best_towers(tables, both.beginning, QUICK, both.settings.adapt)
        reached = validation_sample_of(tables, both.base.sources, QUICK.eval_queries, both.settings.seed).score(towers)
    assert reached == pytest.approx(best["validation"])


def test_the_sample_holds_each_querys_answers_and_others(both: Trained) -> None:
    found = validation_sample_of(both.out.tables(), both.base.sources, 4, 0)
    assert (len(found.queries), len(found.texts), found.is_positive.shape) == (4, 24, (4, 24))
    assert found.is_positive.sum(axis=1).tolist() == [1, 1, 1, 1]
    for query, row in zip(found.queries, found.is_positive, strict=True):
        assert query.partition(" ")[2] in found.texts[int(np.flatnonzero(row)[0])]
    assert found.queries != validation_sample_of(both.out.tables(), both.base.sources, 4, 1).queries


def test_without_validation_queries_nothing_is_trained(both: Trained) -> None:
    run = Run(str(both.root / "none"))
    for name in ("adaptation_queries", "adaptation_labels", "adaptation_texts"):
        rows = both.out.tables(name).read(name)
        if name == "adaptation_queries":
            rows = rows.filter(pc.not_equal(rows["split"], "validation"))
        put(run, name, rows)
    with pytest.raises(ArtifactError, match="no validation query"):
        validation_sample_of(run.tables(), both.base.sources, 4, 0)


KILLED = """
import os, signal, sys
from pathlib import Path
from darklode.flows.jobs.train_both_towers import steps, topical
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.towers import checkpoint
from darklode.schemas.towers import DualSettings
from helpers.adapted import base_for, settings_for

root, source, out, dual = sys.argv[1:]
base = topical(base_for(Run(source), root=Path(root)))
settings = settings_for(Path(root)).model_copy(update={"dual": DualSettings.model_validate_json(dual)})
checkpoint.MIN_SECONDS = 0.0

def told(done, total, note):
    if done == 30 and "L^con" in note:
        os.kill(os.getpid(), signal.SIGKILL)

for step in steps(base, settings)[:3]:
    Run(out).execute(step.plan(Run(out)), step.execute, told)
"""


@pytest.mark.slow
def test_a_killed_trial_goes_on_and_ends_with_the_same_bytes(both: Trained, tmp_path: Path) -> None:
    """Killed in the second of two: the first stands, and the second begins at its last look."""
    given = [str(both.root), both.base.sources[0].run.store.url, str(tmp_path / "out"), QUICK.model_dump_json()]
    done = subprocess.run([sys.executable, "-c", KILLED, *given], env=with_paths(), capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    out, told, step = Run(str(tmp_path / "out")), list[int](), steps(both.base, both.settings)[2]
    out.execute(step.plan(out), step.execute, lambda done, _, note: told.append(done))
    assert told == [32, 34, 36, 38, 40]
    for name in DUAL_TRIALS_STAGE.writes:
        assert out.tables(name).content(name) == both.out.tables(name).content(name)


def test_it_stands_until_something_changes(both: Trained) -> None:
    these = {step.stage.name: step for step in steps(both.base, both.settings)}
    assert all(step.plan(both.out).is_up_to_date for step in these.values())
    longer = both.settings.model_copy(update={"dual": QUICK.model_copy(update={"max_steps": 30})})
    changed = [step.stage.name for step in steps(both.base, longer) if not step.plan(both.out).is_up_to_date]
    assert changed[0] == DUAL_TRIALS_STAGE.name


def test_a_trial_of_other_views_or_prefixes_is_another_unit(both: Trained) -> None:
    """Weights of another length must not be taken over."""
    step = steps(both.base, both.settings)[2]
    for changed in ({"matryoshka_dims": (2, 4)}, {"views": ("all",)}):
        other = both.settings.model_copy(update={"dual": QUICK.model_copy(update=changed)})
        assert steps(both.base, other)[2].plan(both.out).shaping != step.plan(both.out).shaping
