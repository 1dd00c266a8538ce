import json
from pathlib import Path

import pytest

from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import BenchmarkInputs, MinedInputs
from darklode.schemas.settings import Settings
from helpers.commands import Call, one_line
from helpers.finished_run import finished_run

INPUTS = BenchmarkInputs(docs="docs", queries="q.csv")


def test_it_lists_complete_begun_and_damaged_runs(call: Call, tmp_path: Path) -> None:
    write_run(finished_run(str(tmp_path / "team" / "first")), INPUTS, Settings())
    write_run(Run(str(tmp_path / "second")), MinedInputs(docs="docs", logs="log"), Settings())
    damaged = finished_run(str(tmp_path / "third"))
    write_run(damaged, INPUTS, Settings())
    damaged.store.write("manifests/pool.json", b"{")
    (tmp_path / "notes").mkdir()
    shown = call("list", tmp_path, "--json")
    assert (shown.code, shown.err) == (0, "")
    rows = json.loads(shown.out)["runs"]
    assert [(row["run"], row["kind"], row["state"]) for row in rows] == [
        ("second", "mined", "incomplete"),
        ("team/first", "benchmark", "incomplete"),
        ("third", "benchmark", "damaged"),
    ]
    assert rows[1]["stages"] > 10
    assert rows[1]["finished"] > "2026"
    table = call("list", tmp_path).out
    assert "3 runs below" in table
    assert "team/first" in table


def test_a_run_lists_itself_and_nothing_lists_nothing(call: Call, run: Run, tmp_path: Path) -> None:
    write_run(finished_run(run.store.url), INPUTS, Settings())
    assert [row["run"] for row in json.loads(call("list", run.store.url, "--json").out)["runs"]] == ["."]
    (tmp_path / "empty").mkdir()
    assert json.loads(call("list", tmp_path / "empty", "--json").out) == {"runs": []}
    one_line(call("list", tmp_path / "nothing"), "is not a folder; give a folder that contains runs")


def test_what_a_run_is_made_from_is_noted_whole(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(run, BenchmarkInputs(docs="docs", queries="s3://bucket/q.csv"), Settings())
    noted = json.loads((run.store.read("inputs.json") or b"").decode())
    assert noted["docs"] == str(tmp_path / "docs")
    assert noted["queries"] == "s3://bucket/q.csv"
