"""The trials: a student comes near its teacher, and is the same one however often it was killed on the way."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.towers.queries import QUERIES_STAGE
from darklode.pipeline.towers.stage import best_trial, load_best_student
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put, read

from .conftest import Distilled, redo


def files(run: Run) -> dict[str, bytes]:
    """Every table of the trials."""
    folder = Path(run.store.url) / "tables"
    names = ("tower_queries", "distillation_log", "distillation_trials", "adapter_weights")
    return {str(one.relative_to(folder)): one.read_bytes() for name in names for one in (folder / name).glob("*")}


def test_the_distance_on_held_out_queries_falls(distilled: Distilled) -> None:
    rows = read(distilled.out, "distillation_log")
    assert [row["step"] for row in rows] == list(range(0, 61, 3))
    assert rows[0]["squared"] is None
    first, last = float(str(rows[0]["distance"])), float(str(rows[-1]["distance"]))
    assert last < first
    (trial,) = read(distilled.out, "distillation_trials")
    assert trial["distance"] == min(float(str(row["distance"])) for row in rows)


@pytest.mark.slow
def test_it_stands_and_a_killed_one_ends_as_the_same_student(distilled: Distilled, tmp_path: Path) -> None:
    assert redo(distilled.steps(), distilled.out) == []
    out, looks = Run(str(tmp_path / "out")), 0

    def killed(note: str) -> None:
        nonlocal looks
        looks += "held-out" in note
        if looks == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        redo(distilled.steps(), out, killed)
    assert "distillation_trials" not in out.manifests()
    redo(distilled.steps()[:4], out)
    assert files(out) == files(distilled.out)


def test_the_best_look_is_kept_and_of_equals_the_first(distilled: Distilled, tmp_path: Path) -> None:
    rows = [
        {"trial": trial, "learning_rate": 0.1, "step": 3, "distance": distance}
        for trial, distance in enumerate((0.3, 0.2, 0.2))
    ]
    run = Run(str(tmp_path))
    put(run, "distillation_trials", pa.Table.from_pylist(rows, schema=TABLES["distillation_trials"].schema))
    assert best_trial(run.tables())["trial"] == 1
    student = load_best_student(distilled.out.tables(), distilled.pair)
    assert student.loaded[0].auto_model.config.num_hidden_layers == 1


def test_without_a_query_to_look_at_nothing_is_learned(distilled: Distilled, tmp_path: Path) -> None:
    out = Run(str(tmp_path / "out"))
    rows = pa.Table.from_pylist(
        [{"tenant": "acme", "query": "how", "index": 0, "source": "queries", "split": "train"}],
        schema=TABLES["tower_queries"].schema,
    )

    def one(_tables: Tables, output: Output) -> None:
        output.write("tower_queries", rows)

    put(out, "raw_queries", TABLES["raw_queries"].empty())
    execute(out, QUERIES_STAGE, one)
    step = distilled.steps()[3]
    with pytest.raises(ArtifactError, match="fewer than ten queries"):
        out.execute(step.plan(out), step.execute)
