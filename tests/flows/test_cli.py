"""The command line as a whole: its commands and their help, its errors, and the short commands query and export."""

import csv
import io
import json
import re
import subprocess
from pathlib import Path

import pytest
import typer

from darklode.flows import cli
from helpers.commands import CONTROL, DARKLODE, Call, Environment, SampleRun, one_line, run_command

pytestmark = pytest.mark.server

COMMANDS = "init build mine report review validate diff audit status query export pool doctor cache".split()

# query

JOIN = """
    SELECT t.triplet_id, v.relevant, min(r.rank) AS best, any_value(t.query) AS query
    FROM triplets t
    JOIN verdicts v ON (v.tenant, v.query_id, v.chunk_id) = (t.tenant, t.query_id, t.positive_id)
    JOIN rankings r ON (r.tenant, r.query_id, r.chunk_id) = (t.tenant, t.query_id, t.positive_id)
    GROUP BY ALL ORDER BY t.triplet_id LIMIT 5
"""


def test_a_join_in_all_formats(call: Call, sample_run: SampleRun) -> None:
    rows = json.loads(call("query", sample_run.folder, JOIN, "--format", "json").out)
    assert [len(rows), {row["relevant"] for row in rows}] == [5, {True}]
    assert all(1 <= row["best"] <= 60 for row in rows)
    text = call("query", sample_run.folder, JOIN, "--format", "csv").out
    assert list(csv.DictReader(io.StringIO(text))) == [{k: str(v) for k, v in row.items()} for row in rows]
    table = call("query", sample_run.folder, JOIN).out
    assert table.startswith("5 rows\ntriplet_id ")
    assert all(row["triplet_id"] in table for row in rows)


def test_a_query_prints_texts_as_they_are(call: Call, sample_run: SampleRun) -> None:
    hostile = "SELECT '[red]x[/red] [/] [bold' AS \"[/]\", chr(27) || '[31m' || chr(7) AS steering, 12345 AS n"
    shown = call("query", sample_run.folder, hostile)
    assert shown.code == 0
    assert "[red]x[/red] [/] [bold" in shown.out
    assert "12,345" in shown.out
    assert not CONTROL.search(shown.out)


def test_a_reader_that_leaves_early_sees_no_traceback(sample_run: SampleRun, alone: Environment) -> None:
    for form in ("table", "csv"):
        command = [DARKLODE, "query", str(sample_run.folder), "FROM rankings LIMIT 5000", "--format", form]
        process = subprocess.Popen(command, env=alone, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout
        assert process.stderr
        process.stdout.read(100)
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        assert (process.wait(30), said) == (1, b""), form


# export


@pytest.mark.parametrize(
    ("form", "file"),
    [
        ("beir", "corpus.jsonl"),
        ("trec", "qrels.test.txt"),
        ("sentence-transformers", "train.parquet"),
        ("mteb", "test.parquet"),
        ("flagembedding", "train.jsonl"),
        ("tevatron", "corpus.jsonl"),
        ("msmarco", "triples.train.tsv"),
        ("devrev", "annotated_queries.parquet"),
    ],
)
def test_exports_are_written_and_named(call: Call, sample_run: SampleRun, tmp_path: Path, form: str, file: str) -> None:
    shown = call("export", sample_run.folder, "--format", form, "--to", tmp_path / "[bold]to")
    assert (shown.code, shown.err) == (0, "")
    paths = [Path(line) for line in shown.out.splitlines()]
    assert all(path.is_file() for path in paths)
    assert file in {path.name for path in paths}
    again = call("export", sample_run.folder, "--format", form, "--to", tmp_path / "[bold]to")
    assert again.code == 1
    assert again.err.startswith("error: ")


def test_labels_of_the_test_split_are_withheld(call: Call, sample_run: SampleRun, tmp_path: Path) -> None:
    form = ("--format", "beir", "--to", tmp_path / "public", "--withhold-test", tmp_path / "kept")
    shown = call("export", sample_run.folder, *form)
    assert (shown.code, shown.err) == (0, "")
    qrels = {Path(line).relative_to(tmp_path).as_posix() for line in shown.out.splitlines() if "qrels" in line}
    assert "kept/qrels/test.tsv" in qrels
    assert "public/qrels/train.tsv" in qrels
    assert not {"public/qrels/test.tsv", "kept/qrels/train.tsv"} & qrels


# help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option(call: Call, command: str) -> None:
    shown = call(command, "--help")
    declared = typer.main.get_command(cli.app).commands[command]
    options = [name for parameter in declared.params for name in parameter.opts if name.startswith("--")]
    assert shown.code == 0
    assert declared.help in " ".join(shown.out.split())
    assert [name for name in options if not re.search(rf"{name}\b", shown.out)] == []
    assert (f"Example: darklode {command} " in shown.out) == bool(declared.epilog)


def test_help_of_the_whole_lists_the_commands(call: Call) -> None:
    shown = call("--help")
    assert shown.code == 0
    assert re.findall(r"^│ (\w+)  ", shown.out, re.M) == [*COMMANDS, "judge"]
    assert re.fullmatch(r"darklode \d+\.\d+\.\d+\n", call("--version").out)


# errors


def test_a_mistake_ends_the_process_with_1_and_one_line(alone: Environment, tmp_path: Path) -> None:
    one_line(run_command([DARKLODE, "status", str(tmp_path)], alone), "holds no run; make one with `darklode build")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--docs", ".", "--queries", ".", "--out", "x", "--set", "pool.deepth=1"], "did you mean pool.depth"),
        (
            ["build", "--docs", ".", "--queries", ".", "--out", "x", "--preset", "[/]"],
            r"there is no preset \[/\]; known",
        ),
        (["build", "--docs", ".", "--queries", ".", "--out", "x", "--config", "n.yaml"], "no settings file n.yaml"),
        (["status", "nothing"], "nothing holds no run; make one with `darklode build --out"),
        (["status", "nothing", "--settings"], "nothing holds no run"),
        (["query", "nothing", "SELECT 1"], "nothing holds no run"),
        (["export", "nothing", "--format", "beir", "--to", "x"], "nothing holds no run"),
        (["status", "gs://bucket/run"], "gs:// is not a place for a run"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    one_line(call(*arguments), message)
    assert not list(tmp_path.iterdir())


def test_an_unknown_export_format(call: Call, sample_run: SampleRun, tmp_path: Path) -> None:
    one_line(call("export", sample_run.folder, "--format", "zip", "--to", tmp_path / "to"), "no export format 'zip'")
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("sql", ["SELECT * FROM [red]", "SELECT nothing FROM triplets", "DROP VIEW triplets", "", "§"])
def test_an_sql_error_is_explained(call: Call, sample_run: SampleRun, sql: str) -> None:
    shown = call("query", sample_run.folder, sql)
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("error: ")
    assert "Traceback" not in shown.err
    assert "The tables are documents, chunks" in shown.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--docs", "x"], "Missing option '--queries'"),
        (["query", "run", "SELECT 1", "--format", "xml"], "'xml' is not one of 'table', 'csv', 'json'"),
        (["status"], "Missing argument 'RUN'"),
        (["status", "run", "--sett"], "No such option"),
        (["bild"], "No such command 'bild'"),
    ],
)
def test_usage_errors_end_with_2(call: Call, arguments: list[str], message: str) -> None:
    shown = call(*arguments)
    assert (shown.code, shown.out) == (2, "")
    assert message in " ".join(shown.err.replace("│", " ").split())
    assert "Traceback" not in shown.err
