"""What a run is made from, kept beside its tables."""

from pathlib import Path

import pytest

from darklode.flows.config import load_settings
from darklode.flows.runs import benchmark, existing, note, output_run, read_inputs, read_notes, record
from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.base.artifacts.checksummed_json import load_checksummed
from darklode.pipeline.base.errors import ArtifactError, SettingsError

DOCS = {"docs": "/here", "queries": "/there"}
LOGS = {"docs": "/here", "logs": "/log"}


def test_a_run_exists_once_a_stage_is_complete(run: Run) -> None:
    with pytest.raises(ArtifactError, match=r"run holds no run; make one with `darklode build --out"):
        existing(run.store.url)
    record(run, DOCS, load_settings())
    with pytest.raises(ArtifactError, match="holds no run"):
        existing(run.store.url)
    run.execute(run.plan(Stage("work", 1, (), ()), {}), lambda _tables, _output: None)
    assert existing(run.store.url).store.url == run.store.url


def test_what_was_recorded_comes_back(run: Run) -> None:
    chosen = load_settings(
        assignments=["pool.depth=7", "judge.kind=llm", "judge.model=m", "judge.base_url=http://h/v1"]
    )
    record(run, DOCS, chosen)
    made = read_inputs(run)
    assert (made.inputs, made.settings, made.is_mined) == (DOCS, chosen, False)
    record(run, {"docs": "/elsewhere", "queries": "/there"}, load_settings())
    assert read_inputs(run).inputs["docs"] == "/elsewhere"


def test_a_run_of_one_kind_takes_no_other(run: Run) -> None:
    record(run, LOGS, load_settings())
    assert read_inputs(run).is_mined
    assert output_run(run.store.url, mined=True).store.url == run.store.url
    with pytest.raises(ArtifactError, match=r"holds triplets made by `darklode mine`; choose another --out"):
        output_run(run.store.url, mined=False)
    with pytest.raises(ArtifactError, match="and no benchmark"):
        benchmark(run)
    other = Run(f"{run.store.url}-2")
    record(other, DOCS, load_settings())
    with pytest.raises(ArtifactError, match="holds a benchmark made by `darklode build`"):
        output_run(other.store.url, mined=True)
    assert benchmark(other).inputs == DOCS


@pytest.mark.parametrize("name", ["README.md", ".git/config", "settings.yaml", "inputs.json", "a/b/c.txt"])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(
        ArtifactError, match=rf"holds {name.split('/', maxsplit=1)[0]} and no run; choose a folder of its own"
    ):
        output_run(str(tmp_path), mined=False)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == [name]


def test_a_folder_where_a_run_was_killed_at_once_is_taken(tmp_path: Path) -> None:
    for name in (".lock", ".inputs.json.4711.tmp"):
        (tmp_path / name).write_text("")
    assert output_run(str(tmp_path), mined=True).store.local == tmp_path.resolve()
    assert output_run(str(tmp_path / "new"), mined=True).store.local == tmp_path.resolve() / "new"


@pytest.mark.parametrize("missing", ["inputs.json", "settings.yaml"])
def test_half_a_record_is_no_run(run: Run, missing: str) -> None:
    record(run, DOCS, load_settings())
    run.store.delete(missing)
    with pytest.raises(ArtifactError, match="holds no run"):
        read_inputs(run)


def test_settings_change_in_their_places_and_the_record_does_not(run: Run) -> None:
    record(run, DOCS, load_settings(assignments=["pool.depth=7"]))
    made = read_inputs(run)
    changed = made.with_overrides({"audit": {"bootstrap": 50}})
    assert (changed.audit.bootstrap, changed.pool.depth) == (50, 7)
    assert read_inputs(run).settings == made.settings
    with pytest.raises(SettingsError, match=r"audit\.bootstrap"):
        made.with_overrides({"audit": {"bootstrap": 0}})


def test_what_is_noted_besides_is_no_input(run: Run) -> None:
    record(run, LOGS, load_settings())
    note(run, {"learn": "2026-03-01"})
    made = read_inputs(run)
    record(run, made.inputs, made.settings)
    assert (made.inputs, read_notes(run)["learn"]) == (LOGS, "2026-03-01")


def test_notes_are_added_and_replaced(run: Run) -> None:
    assert read_notes(run) == {}
    note(run, {"a": 1, "b": 2})
    note(run, {"b": 3})
    assert read_notes(run) == {"a": 1, "b": 3}
    assert load_checksummed(run.store.read("inputs.json") or b"") == {"a": 1, "b": 3}
