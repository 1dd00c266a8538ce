"""Trials as a stage: what a kill leaves, what stands, and which trial is chosen."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.agreement import FOLDS
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit.head_methods import HeadMethod
from darklode.pipeline.train.fit.model_selection import MIN_VALIDATION
from darklode.pipeline.train.fit.stage import TRAIN_STAGE, best_trial, load_best_trial
from darklode.pipeline.train.fit.term_start import best_term_start
from darklode.pipeline.train.fit.weights import as_rows, load_weights
from darklode.pipeline.train.fit.whitening import best_whitening, whitenings
from darklode.schemas.tables import TABLES
from helpers.adapted import base_for, build_to_adapt
from helpers.runs import put, read

from ..conftest import QUICK, Adapted, redo


def files(run: Run) -> dict[str, bytes | None]:
    return {name: run.store.read(name) for table in TRAIN_STAGE.writes for name in run.store.sizes(f"tables/{table}")}


@pytest.mark.slow
def test_a_stopped_training_goes_on_and_ends_in_the_same_bytes(adapted: Adapted, tmp_path: Path) -> None:
    out = Run(str(tmp_path / "out"))
    looks = 1 + QUICK.max_steps // 50
    with pytest.raises(KeyboardInterrupt):
        redo(steps(adapted.base, adapted.settings)[:4], out, stop_after=looks)
    assert out.manifest(TRAIN_STAGE) is None
    told = redo(steps(adapted.base, adapted.settings)[:4], out)
    is_trained = best_trial(adapted.out.tables())["setting"] != "0"  # 0: the untrained start, which has no step
    assert len(told) == (2 * FOLDS - 1 + is_trained) * looks, "the first trial of the first fold is not repeated"
    assert told[0].startswith("fold 1, learning rate 0.0003: loss")
    assert files(out) == files(adapted.out)
    assert redo(steps(adapted.base, adapted.settings)[:4], out) == [], "it stands"


@pytest.mark.slow
def test_another_rate_trains_itself_alone(adapted: Adapted, tmp_path: Path) -> None:
    out = Run(str(tmp_path / "out"))
    redo(steps(adapted.base, adapted.settings)[:4], out)
    more = adapted.settings.model_copy(
        update={"adapt": QUICK.model_copy(update={"learning_rates": (1e-4, 3e-4, 1e-3)})}
    )
    told, done = list[str](), list[tuple[int, int | None]]()
    step = steps(adapted.base, more)[3]

    def report(count: int, total: int | None, note: str) -> None:
        told.append(note)
        done.append((count, total))

    out.execute(step.plan(out), step.execute, report)
    assert {total for _, total in done} == {(4 * FOLDS + 1) * QUICK.max_steps}, (
        "a trial of each rate a fold, and the last"
    )
    assert all(0 <= count <= total for count, total in done if total), "316 of 200 would be no progress"
    assert done[-1][0] == done[-1][1]
    folds = {f"fold {number + 1}, learning rate 0.001" for number in range(FOLDS)}
    assert folds <= {note.partition(":")[0] for note in told} <= folds | {"learning rate 0.001"}


@pytest.mark.slow
def test_training_reads_no_word_of_a_document(adapted: Adapted, tmp_path: Path) -> None:
    """The runs are gone, and so is the model: the cache has all that is needed."""
    out = Run(str(tmp_path / "out"))
    *before, third = steps(adapted.base, adapted.settings)[:4]
    for step in before:
        out.execute(step.plan(out), step.execute)
    assert "content" not in str(read(out, "adaptation_texts")[0].keys() - {"content_hash"})
    (tmp_path / "run").mkdir()
    nowhere = base_for(Run(str(tmp_path / "run")), root=adapted.root)
    step = steps(nowhere, adapted.settings)[3]
    out.execute(step.plan(out), step.execute)
    assert files(out) == files(adapted.out)
    assert third.stage is TRAIN_STAGE


def test_the_best_on_validation_is_chosen_and_of_equals_the_nearest_to_the_base(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    rows = [
        {"trial": trial, "setting": str(trial), "share": share, "step": 1, "validation": value, "queries": 3}
        for trial, share, value in ((0, 0.0, 0.5), (0, 1.0, 0.6), (1, 0.5, 0.6), (1, 1.0, 0.4))
    ]
    put(run, "adaptation_trials", pa.Table.from_pylist(rows, schema=TABLES["adaptation_trials"].schema))
    weights = [{"0.weight": np.full((4, 4), trial + 1, np.float32)} for trial in range(2)]
    put(run, "adapter_weights", pa.concat_tables([as_rows(trial, one) for trial, one in enumerate(weights)]))
    best, found = load_best_trial(run.tables())
    assert (best["trial"], best["share"]) == (1, 0.5)
    assert (found["0.weight"] == 2.0).all()


def test_enough_validation_queries_choose_alone(adapted: Adapted, tmp_path: Path) -> None:
    source = build_to_adapt(tmp_path / "run", {"train": 20, "validation": MIN_VALIDATION, "test": 3})
    out, base = Run(str(tmp_path / "out")), base_for(source, root=adapted.root)
    told = redo(steps(base, adapted.settings)[:4], out)
    assert {note.partition(":")[0] for note in told} == {"learning rate 0.0001", "learning rate 0.0003"}
    rows = read(out, "adaptation_trials")
    assert {(row["queries"], row["folds"]) for row in rows} == {(MIN_VALIDATION, None)}
    assert {row["trial"] for row in read(out, "adapter_weights")} == {0, 1, 2}


def test_the_untrained_start_is_a_trial(adapted: Adapted, tmp_path: Path) -> None:
    source = build_to_adapt(tmp_path / "run", {"train": 20, "validation": MIN_VALIDATION, "test": 3})
    out, base = Run(str(tmp_path / "out")), base_for(source, root=adapted.root)
    redo(steps(base, adapted.settings)[:4], out)
    tables = out.tables()
    task = Task.from_tables(tables, base.open(tables), same_document=False)
    whitening, queries = best_whitening(task, whitenings(task)), task.validation
    expected = queries.vectors if whitening is None else whitening.apply(queries.vectors)
    mix = best_term_start(task, whitening)
    expected = expected if mix is None else mix.apply(queries)
    vectors = HeadMethod(QUICK, base).vectors(load_weights(tables, 0), 1.0, queries)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_a_validation_query_that_shares_a_positive_does_not_select(adapted: Adapted, tmp_path: Path) -> None:
    source = build_to_adapt(tmp_path / "run", {"train": 20, "validation": MIN_VALIDATION + 1, "test": 3})
    labels = source.tables().read("training_labels").to_pandas()
    taught = labels["query_id"].eq("validation-005") & labels["relevance"].eq(1)
    labels.loc[taught, "chunk_id"] = "train-003#0"
    put(source, "training_labels", pa.Table.from_pandas(labels, schema=TABLES["training_labels"].schema))
    out, base = Run(str(tmp_path / "out")), base_for(source, root=adapted.root)
    redo(steps(base, adapted.settings)[:4], out)
    assert {row["queries"] for row in read(out, "adaptation_trials")} == {MIN_VALIDATION}


@pytest.mark.slow
def test_one_below_is_too_few_and_without_any_the_train_queries_do(adapted: Adapted, tmp_path: Path) -> None:
    for validation in (MIN_VALIDATION - 1, 0):
        source = build_to_adapt(tmp_path / f"run{validation}", {"train": 20, "validation": validation, "test": 3})
        out, base = Run(str(tmp_path / f"out{validation}")), base_for(source, root=adapted.root)
        redo(steps(base, adapted.settings)[:4], out)
        rows = read(out, "adaptation_trials")
        assert {(row["queries"], row["folds"]) for row in rows} == {(19 + validation, FOLDS)}
        assert len({row["trial"] for row in read(out, "adapter_weights")}) == 1, "the chosen one alone"


def test_with_one_cluster_nothing_can_be_chosen(adapted: Adapted, tmp_path: Path) -> None:
    source = build_to_adapt(tmp_path / "run", {"train": 2, "validation": 0, "test": 3})
    out, base = Run(str(tmp_path / "out")), base_for(source, root=adapted.root)
    *before, third = steps(base, adapted.settings)[:4]
    for step in before:
        out.execute(step.plan(out), step.execute)
    with pytest.raises(ArtifactError, match="all queries with a positive are in one cluster"):
        out.execute(third.plan(out), third.execute)


def test_the_log_tells_of_every_look(adapted: Adapted) -> None:
    rows = read(adapted.out, "training_log")
    assert [(row["trial"], row["step"]) for row in rows] == [
        (trial, step) for trial in (1, 2) for step in (0, 50, 100)
    ], "trial 0 is the whitened start, untrained"
    assert rows[0]["loss"] is None
    assert all(0 <= float(str(row["validation"])) <= 1 for row in rows)
    assert json.dumps(rows)
