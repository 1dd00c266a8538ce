"""`import darklode`: the names that users may rely on, and the walk of docs/guides/python.md."""

import re
import shutil
import subprocess
import sys
from datetime import date
from inspect import signature
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pytest
import typer

import darklode
from darklode.flows import cli
from helpers.commands import Environment, SampleRun
from helpers.runs import REPOSITORY, SAMPLE

PAGE = REPOSITORY / "docs" / "guides" / "python.md"


def test_the_exported_names_are_these() -> None:
    types = ["DarklodeError", "JobResult", "ReportPage", "RunView", "Settings", "TableRows", "WebPages"]
    assert darklode.__all__ == [*types, *sorted([*FUNCTIONS, "open"])]
    assert dir(darklode) == darklode.__all__
    assert all(getattr(darklode, name).__module__.startswith("darklode.") for name in darklode.__all__)
    public = {name for name in vars(darklode.RunView) if not name.startswith("_")}
    assert public == {"card", "report", "settings", "sql", "status", "table", "tables", "url"}
    assert {name for name in vars(darklode.TableRows) if not name.startswith("_")} == {"columns", "df", "pl"}
    with pytest.raises(AttributeError, match="no attribute 'bulid'"):
        darklode.bulid  # type: ignore[attr-defined] # noqa: B018


FUNCTIONS = {
    "adapt": "adapt train",
    "audit": "audit",
    "browse": "browse",
    "build": "build",
    "demo": "demo",
    "evaluate": "evaluate",
    "export": "export",
    "generate": "generate",
    "index": "index make",
    "mine": "mine",
    "model_swap": "adapt model-swap",
    "report": "report",
    "review": "review",
    "search": "search",
    "serve": "serve",
    "train_reranker": "train-reranker",
    "validate": "validate",
}
"""Functions and their commands."""
ONLY_COMMANDS = {"json", "check", "open", "push", "public"}
SHEETS = {"export_sheet", "import_sheet", "reviewer"}  # a review in spreadsheets is for the command line
ONLY_FUNCTIONS = {"silent"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_has_the_arguments_of_its_command(function: str) -> None:
    command = typer.main.get_command(cli.app)
    for name in FUNCTIONS[function].split():
        command = command.commands[name]  # type: ignore[attr-defined]
    options = {argument_name(parameter) for parameter in command.params} - ONLY_COMMANDS - SHEETS
    arguments = signature(getattr(darklode, function)).parameters
    assert arguments.keys() - ONLY_FUNCTIONS == options
    described = re.findall(r"^        (\w+): ", docstring(getattr(darklode, function)), re.MULTILINE)
    assert described[: len(arguments)] == list(arguments)


def argument_name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar).lower()
    name = parameter.opts[0].removeprefix("--").replace("-", "_")
    return {"set": "settings", "from": "from_", "for": "for_"}.get(name, name)


def docstring(function: Any) -> str:
    return str(function.__doc__)


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import darklode, sys; print(len([name for name in sys.modules if name.startswith('darklode')]))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "1"


def test_a_folder_without_a_run_is_said_to_hold_none(tmp_path: Path) -> None:
    with pytest.raises(darklode.DarklodeError, match="holds no run"):
        darklode.open(tmp_path)


def test_a_missing_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(darklode.DarklodeError, match="say where queries is"):
        darklode.build(SAMPLE, out=tmp_path)


def test_nested_settings_reach_the_evaluation(sample_run: SampleRun) -> None:
    with pytest.raises(darklode.DarklodeError, match=r"there is no setting evaluate\.n_resample;"):
        darklode.evaluate(sample_run.folder, system="bm25", settings={"evaluate": {"n_resample": 50}})


def test_a_run_is_read_as_it_is(sample_run: SampleRun) -> None:
    run = darklode.open(sample_run.folder)
    assert {"chunks", "qrels", "queries", "triplets"} <= set(run.tables)
    rows = run.table("triplets")
    assert pa.table(rows).equals(rows.arrow)
    assert len(rows) == len(rows.df()) == rows.pl().height == len(list(rows)) > 40
    assert list(run.sql("SELECT count(*) AS n FROM triplets")) == [{"n": len(rows)}]
    assert (run.settings.pool.depth, run.settings.judge.kind) == (60, "embedded")
    assert set(run.status()["state"]) == {"up to date"}
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
    assert clicks.sql("SELECT max(date) AS last FROM triplets")[0]["last"] > date(2026, 1, 1)


@pytest.mark.slow
def test_a_script_ends_in_silence(tmp_path: Path, alone: Environment) -> None:
    places = [str(SAMPLE / "documents" / "pelagia" / "api"), str(SAMPLE), str(tmp_path / "run")]
    script = f"import darklode\nfor _ in range(2): print(len(darklode.build(*{places}).table('triplets')) > 0)"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, env=dict(alone))
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nTrue\n", "")


@pytest.mark.slow
def test_the_first_example_of_the_help_works_in_an_empty_folder(tmp_path: Path, alone: Environment) -> None:
    example = dedent("".join(re.findall(r"^    .*\n|^\n", str(darklode.__doc__), re.MULTILINE)))
    assert example.strip().startswith("import darklode")
    shown = "print(run.report, sorted(run.table('triplets')[0]))"
    command = [sys.executable, "-c", f"{example}\n{shown}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=dict(alone), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<report " in done.stdout
