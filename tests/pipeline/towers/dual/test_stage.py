"""The trials: each is kept with its weights, a killed one alone begins anew, and the best one graduates."""

import numpy as np
import pyarrow.compute as pc
import pytest

from darklode.flows.train_both_towers import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.towers.dual.stage import TRAINED, graduates, sample
from darklode.pipeline.train.loop import steady
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
    with steady(0):
        towers = graduates(tables, both.beginning, QUICK, both.settings.adapt)
        reached = sample(tables, both.base.sources, QUICK.held_out, both.settings.seed).reached(towers)
    assert reached == pytest.approx(best["validation"])


def test_the_sample_holds_each_querys_answers_and_others(both: Trained) -> None:
    found = sample(both.out.tables(), both.base.sources, 4, 0)
    assert (len(found.queries), len(found.texts), found.right.shape) == (4, 24, (4, 24))
    assert found.right.sum(axis=1).tolist() == [1, 1, 1, 1]
    for query, row in zip(found.queries, found.right, strict=True):
        assert query.partition(" ")[2] in found.texts[int(np.flatnonzero(row)[0])]
    assert found.queries != sample(both.out.tables(), both.base.sources, 4, 1).queries


def test_without_validation_queries_nothing_is_trained(both: Trained) -> None:
    run = Run(str(both.root / "none"))
    for name in ("adaptation_queries", "adaptation_labels", "adaptation_texts"):
        rows = both.out.tables(name).read(name)
        if name == "adaptation_queries":
            rows = rows.filter(pc.not_equal(rows["split"], "validation"))
        put(run, name, rows)
    with pytest.raises(ArtifactError, match="no validation query"):
        sample(run.tables(), both.base.sources, 4, 0)


def test_it_stands_until_something_changes(both: Trained) -> None:
    these = {step.stage.name: step for step in steps(both.base, both.settings)}
    assert all(step.plan(both.out).stands for step in these.values())
    longer = both.settings.model_copy(update={"dual": QUICK.model_copy(update={"steps": 30})})
    changed = [step.stage.name for step in steps(both.base, longer) if not step.plan(both.out).stands]
    assert changed[0] == TRAINED.name
