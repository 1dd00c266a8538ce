"""`import darklode`: the names that users may rely on, and the walk of docs/guides/python.md."""

import re
import shutil
import subprocess
import sys
from datetime import date
from inspect import signature
from pathlib import Path

import pyarrow as pa
import pytest

import darklode
from darklode.api import _merge_nested, _settings
from darklode.flows.config import load_settings
from helpers.commands import Environment, SampleRun
from helpers.runs import REPOSITORY, SAMPLE

PAGE = REPOSITORY / "docs" / "guides" / "python.md"


def test_the_exported_names_are_these() -> None:
    assert sorted(darklode.__all__) == [
        "DarklodeError",
        "RunView",
        "Settings",
        "TableRows",
        "build",
        "evaluate",
        "mine",
        "open",
    ]
    assert dir(darklode) == darklode.__all__
    public = {name for name in vars(darklode.RunView) if not name.startswith("_")}
    assert public == {"card", "settings", "sql", "status", "table", "tables", "url"}
    assert {name for name in vars(darklode.TableRows) if not name.startswith("_")} == {
        "columns",
        "to_pandas",
        "to_polars",
        "to_pylist",
    }
    with pytest.raises(AttributeError, match="no attribute 'bulid'"):
        darklode.bulid  # noqa: B018


def test_the_arguments_are_these() -> None:
    both = ["preset", "config", "settings"]
    assert list(signature(darklode.build).parameters) == ["docs", "queries", "out", *both, "keep_all_queries", "human"]
    days = ["first", "last", "test_from", "refresh", "accept_days", "discard_days", "reason"]
    assert list(signature(darklode.mine).parameters) == ["logs", "docs", "out", *days, *both]


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import darklode, sys; print(len([name for name in sys.modules if name.startswith('darklode')]))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "1"


def test_a_folder_without_a_run_is_said_to_hold_none(tmp_path: Path) -> None:
    with pytest.raises(darklode.DarklodeError, match="holds no run"):
        darklode.open(tmp_path)


def test_a_missing_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(darklode.DarklodeError, match="say where queries is"):
        darklode.build(SAMPLE)


def test_what_is_given_is_what_the_command_line_would_make_of_it() -> None:
    values = {"judge.model": "m", "judge.base_url": "http://h/v1", "judge.kind": "llm"}
    assignments = [f"{name}={value}" for name, value in values.items()]
    assert _settings("embedded", None, values, {}) == load_settings(assignments=assignments)
    taught = _settings("local", None, {}, {"judge.human_labels": "labels.csv"})
    assert taught == load_settings("local", assignments=["judge.human_labels=labels.csv"])


def test_options_do_not_drop_settings_of_the_same_section() -> None:
    overrides = {"evaluate": {"n_resamples": 50, "systems": ["bm25"]}, "evaluate.permutations": 60}
    merged = {"n_resamples": 50, "permutations": 60, "systems": ["ppmi"]}
    assert _merge_nested(overrides, {"evaluate": {"systems": ["ppmi"]}}) == {"evaluate": merged}


def test_nested_settings_reach_the_evaluation(sample_run: SampleRun) -> None:
    with pytest.raises(darklode.DarklodeError, match=r"there is no setting evaluate\.n_resample;"):
        darklode.evaluate(sample_run.folder, systems=["bm25"], settings={"evaluate": {"n_resample": 50}})


def test_a_run_is_read_as_it_is(sample_run: SampleRun) -> None:
    run = darklode.open(sample_run.folder)
    assert {"chunks", "qrels", "queries", "triplets"} <= set(run.tables)
    rows = run.table("triplets")
    assert pa.table(rows).equals(rows.arrow)
    assert len(rows) == len(rows.to_pandas()) == rows.to_polars().height == len(rows.to_pylist()) > 40
    assert run.sql("SELECT count(*) AS n FROM triplets").to_pylist() == [{"n": len(rows)}]
    assert (run.settings.pool.depth, run.settings.judge.kind) == (60, "embedded")
    assert {row["state"] for row in run.status().to_pylist()} == {"up to date"}
    assert run.card == (sample_run.folder / "README.md").read_text(encoding="utf-8")
    with pytest.raises(darklode.DarklodeError, match="no table mined_pairs"):
        run.table("mined_pairs")
    with pytest.raises(darklode.DarklodeError, match="write one SELECT"):
        run.sql("DROP VIEW triplets")


@pytest.mark.slow
def test_the_page_can_be_followed(tmp_path: Path, served: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SAMPLE, tmp_path / "data" / "sample")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", served["PREFECT_API_URL"])
    monkeypatch.setenv("PREFECT_LOGGING_TO_API_ENABLED", "false")
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    clicks = names["clicks"]
    assert isinstance(clicks, darklode.RunView)
    assert clicks.sql("SELECT max(date) AS last FROM triplets").to_pylist()[0]["last"] > date(2026, 1, 1)


@pytest.mark.slow
def test_a_script_ends_in_silence(tmp_path: Path, alone: Environment) -> None:
    places = [str(SAMPLE / "documents" / "pelagia" / "api"), str(SAMPLE), str(tmp_path / "run")]
    script = f"import darklode\nfor _ in range(2): print(len(darklode.build(*{places}).table('triplets')) > 0)"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, env=dict(alone))
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nTrue\n", "")
