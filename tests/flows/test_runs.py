"""What a folder is made from, kept beside its tables."""

from datetime import date
from pathlib import Path

import pytest

from darklode.flows.config import load_settings
from darklode.flows.runs import (
    check_record,
    existing,
    folder_kind,
    is_adapter,
    output_run,
    read_benchmark,
    read_inputs,
    read_run,
    update_inputs,
    write_inputs,
    write_run,
)
from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.base.artifacts.checksummed_json import load_checksummed
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.schemas.run_inputs import (
    AdapterInputs,
    BenchmarkInputs,
    ComparisonInputs,
    GeneratedInputs,
    IndexInputs,
    Inputs,
    LawsInputs,
    MinedInputs,
    TenantAdaptersInputs,
    TowersInputs,
)

DOCS = BenchmarkInputs(docs="/here", queries="/there")
LOGS = MinedInputs(docs="/here", logs="/log")
ALL = [
    DOCS,
    LOGS,
    AdapterInputs(runs=["r"], encoder="e"),
    TenantAdaptersInputs(runs=["r"], encoder="e"),
    ComparisonInputs(runs=["r"], encoder="e"),
    TowersInputs(runs=["r"], encoder="e", stage=1),
    TowersInputs(runs=["r"], encoder="e", queries=["q.csv"]),
    IndexInputs(source="r", encoder="e", tenant="t"),
    GeneratedInputs(source="r"),
    LawsInputs(runs=["r"], encoders=["e"]),
]


def test_a_run_exists_once_a_stage_is_complete(run: Run) -> None:
    with pytest.raises(ArtifactError, match=r"run holds no run; make one with `darklode build --out"):
        existing(run.store.url)
    write_run(run, DOCS, load_settings())
    with pytest.raises(ArtifactError, match="holds no run"):
        existing(run.store.url)
    run.execute(run.plan(Stage("work", 1, (), ()), {}), lambda _tables, _output: None)
    assert existing(run.store.url).store.url == run.store.url


def test_what_was_recorded_comes_back(run: Run) -> None:
    chosen = load_settings(
        assignments=["pool.depth=7", "judge.kind=llm", "judge.model=m", "judge.base_url=http://h/v1"]
    )
    write_run(run, DOCS, chosen)
    record = read_run(run)
    assert (record.inputs, record.settings, record.is_mined) == (DOCS, chosen, False)
    write_run(run, BenchmarkInputs(docs="/elsewhere", queries="/there"), load_settings())
    assert read_benchmark(run)[1].docs == "/elsewhere"


@pytest.mark.parametrize("inputs", ALL, ids=lambda inputs: f"{inputs.kind}-{getattr(inputs, 'stage', '')}")
def test_inputs_of_every_kind_come_back(run: Run, inputs: Inputs) -> None:
    assert folder_kind(run) is None
    write_inputs(run, inputs)
    assert (read_inputs(run), folder_kind(run)) == (inputs, inputs.kind)
    assert is_adapter(run) == (
        inputs.kind in {"adapter", "tenant-adapters", "comparison"} or getattr(inputs, "stage", None) == 2
    )
    if inputs.kind not in {"benchmark", "mined", "generated"}:
        with pytest.raises(ArtifactError, match=rf"holds {inputs.description} \(`{inputs.command}`\), not a run"):
            read_run(run)


def test_a_run_of_one_kind_takes_no_other(run: Run) -> None:
    write_run(run, LOGS, load_settings())
    assert read_run(run).is_mined
    assert output_run(run.store.url, MinedInputs).store.url == run.store.url
    with pytest.raises(ArtifactError, match=r"holds mined triplets \(`darklode mine`\); choose another --out"):
        output_run(run.store.url, BenchmarkInputs)
    with pytest.raises(ArtifactError, match="not a benchmark"):
        read_benchmark(run)
    other = Run(f"{run.store.url}-2")
    write_run(other, DOCS, load_settings())
    with pytest.raises(ArtifactError, match=r"holds a benchmark \(`darklode build`\)"):
        output_run(other.store.url, MinedInputs)
    assert read_benchmark(other)[1] == DOCS


@pytest.mark.parametrize("name", ["README.md", ".git/config", "settings.yaml", "inputs.json", "a/b/c.txt"])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(
        ArtifactError, match=rf"holds {name.split('/', maxsplit=1)[0]} and no run; choose a new or empty folder"
    ):
        output_run(str(tmp_path), BenchmarkInputs)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == [name]


def test_a_folder_where_a_run_was_killed_at_once_is_taken(tmp_path: Path) -> None:
    for name in (".lock", ".inputs.json.4711.tmp"):
        (tmp_path / name).write_text("")
    assert output_run(str(tmp_path), MinedInputs).store.local == tmp_path.resolve()
    assert output_run(str(tmp_path / "new"), MinedInputs).store.local == tmp_path.resolve() / "new"


@pytest.mark.parametrize("missing", ["inputs.json", "settings.yaml"])
def test_half_a_record_is_no_run(run: Run, missing: str) -> None:
    write_run(run, DOCS, load_settings())
    run.store.delete(missing)
    with pytest.raises(ArtifactError, match="holds no run"):
        read_run(run)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"docs": "d", "queries": "q"}', "no key `kind`: an earlier version of Darklode wrote it. Run the command"),
        (b'{"kind": "album", "docs": "d"}', "is damaged (: Input tag 'album'"),
        (b'{"kind": "benchmark", "docs": "d"}', "is damaged (benchmark.queries: Field required)"),
        (b'{"kind": "benchmark", "docs": "d", "queries": "q", "log": "l"}', "benchmark.log: Extra inputs"),
        (b"{", "is damaged ("),
    ],
)
def test_unreadable_inputs_are_an_error_that_says_what_to_do(run: Run, content: bytes, message: str) -> None:
    run.store.write("inputs.json", content)
    run.store.write("settings.yaml", b"{}")
    for read in (read_inputs, read_run, check_record):
        with pytest.raises(ArtifactError) as raised:
            read(run)
        assert message in str(raised.value)
        assert "un the command" in str(raised.value)


def test_an_earlier_versions_folder_is_not_written_to(run: Run) -> None:
    run.store.write("inputs.json", b'{"docs": "d", "queries": "q"}')
    with pytest.raises(ArtifactError, match="an earlier version of Darklode wrote it"):
        output_run(run.store.url, BenchmarkInputs)


def test_settings_change_in_their_places_and_the_record_does_not(run: Run) -> None:
    write_run(run, DOCS, load_settings(assignments=["pool.depth=7"]))
    record = read_run(run)
    changed = record.with_overrides({"evaluate": {"n_resamples": 50}})
    assert (changed.evaluate.n_resamples, changed.pool.depth) == (50, 7)
    assert read_run(run).settings == record.settings
    with pytest.raises(SettingsError, match=r"evaluate\.n_resamples"):
        record.with_overrides({"evaluate": {"n_resamples": 0}})


def test_state_survives_a_new_record(run: Run) -> None:
    write_run(run, LOGS, load_settings())
    update_inputs(run, refit_through=date(2026, 3, 1))
    write_run(run, MinedInputs(docs="/here", logs="/other"), load_settings())
    state = MinedInputs(docs="/here", logs="/other", refit_through=date(2026, 3, 1))
    assert read_inputs(run) == state
    assert load_checksummed(run.store.read("inputs.json") or b"") == {
        "kind": "mined", "logs": "/other", "docs": "/here", "refit_through": "2026-03-01"
    }  # fmt: skip


def test_inputs_that_are_written_again_are_the_same_bytes(run: Run) -> None:
    """Also with state that a later command added: else a run without news would change its files."""
    write_inputs(run, DOCS)
    update_inputs(run, pages="f00")
    before = run.store.read("inputs.json")
    write_inputs(run, DOCS)
    assert run.store.read("inputs.json") == before
