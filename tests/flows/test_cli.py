"""The command line: what it prints, what it leaves on disk, and how it fails."""

import csv
import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import typer
import yaml
from commands import (
    DARKLODE,
    START_SECONDS,
    Call,
    Environment,
    Outcome,
    SampleRun,
    build_command,
    built,
    run_command,
    tables_of,
    wait_for,
)

from conftest import SAMPLE
from flows import cli
from pipeline.artifacts import Run

pytest_plugins = ["flow_fixtures"]
pytestmark = pytest.mark.server

STAGES = "ingest_documents ingest_queries clean split chunk search pool calibrate judge label triplets audit".split()
COMMANDS = "init build mine report review validate diff audit status query export pool doctor cache".split()
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@pytest.fixture
def copied(sample_run: SampleRun, tmp_path: Path) -> Path:
    """A run of one's own, as finished as the sample's."""
    return Path(shutil.copytree(sample_run.folder, tmp_path / "run"))


# build


def test_a_build_prints_what_came_in_what_came_out_and_where_it_is(sample_run: SampleRun) -> None:
    printed = sample_run.printed
    for stage in STAGES:
        assert f"{stage}: not run yet\n✓ {stage} " in printed
    assert re.search(r"^Funnel$.*^ingest\.documents +\d+ +rows +81 +rows +not a document format", printed, re.M | re.S)
    assert re.search(r"^clean\.language +\d+ +queries +\d+ +queries +language \w\w \d+", printed, re.M)
    assert re.search(r"^bm25 +[01]\.\d{3} +[01]\.\d{3}", printed, re.M)
    assert "Three of the triplets" in printed
    assert "Labels by the embedded scorer, not by an LLM" in printed
    for place in ("report.html", "README.md", "tables/", "tables/triplets/", "views.sql", "settings.yaml"):
        assert f" {sample_run.folder}/{place}\n" in printed
        assert (sample_run.folder / place).exists()


def test_no_terminal_no_control_characters(sample_run: SampleRun) -> None:
    assert not CONTROL.search(sample_run.printed)


def test_a_second_build_stands_and_rewrites_nothing(copied: Path, served: Environment) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        found = (path for name in ("tables", "manifests") for path in (copied / name).rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in found}

    before = files()
    printed = built(build_command(copied), served)
    for stage in [*STAGES, "funnel"]:
        assert re.search(rf"^✓ {stage} .* stands$", printed, re.M), stage
    assert "not run yet" not in printed
    assert files() == before


def test_a_terminal_shows_bars(copied: Path, served: Environment) -> None:
    ours, theirs = pty.openpty()
    command = build_command(copied, "--set", "audit.bootstrap=50")
    environment = dict(served) | {"TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, env=environment, stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # Linux: the other end was closed
        pass
    finally:
        os.close(ours)
        assert process.wait(60) == 0, seen.decode()
    shown = seen.decode()
    assert re.search(r"audit +\S*[━╸╺]", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)), shown
    assert "\x1b[2K" in shown  # the bar is cleared, and a line stands in its place
    assert "audit: " not in shown


# status


def test_status_of_a_run_that_stands(call: Call, sample_run: SampleRun) -> None:
    shown = call("status", sample_run.folder)
    assert (shown.code, shown.err) == (0, "")
    assert str(sample_run.folder) in shown.out
    for stage in STAGES:
        assert re.search(rf"^{stage} +stands +\S.* \d+\.\d{{3}}$", shown.out, re.M), stage


def test_status_names_the_setting_that_changed(call: Call, copied: Path) -> None:
    chosen = yaml.safe_load((copied / "settings.yaml").read_text())
    chosen["audit"]["bootstrap"] = 77
    (copied / "settings.yaml").write_text(yaml.safe_dump(chosen))
    out = call("status", copied).out
    assert re.search(r"^audit +bootstrap: 1000 → 77 ", out, re.M)
    assert len(re.findall(r" stands ", out)) == len(STAGES) - 1


def test_status_after_a_document_changed(call: Call, copied: Path, tmp_path: Path) -> None:
    docs = Path(shutil.copytree(SAMPLE / "documents", tmp_path / "docs"))
    (copied / "inputs.json").write_text(json.dumps({"docs": str(docs), "queries": str(SAMPLE)}))
    assert re.search(r"^ingest_documents +the documents' files changed ", call("status", copied).out, re.M)
    shutil.rmtree(docs)
    assert re.search(r"^ingest_documents +\S*docs does not exist", call("status", copied).out, re.M)


def test_status_names_a_part_that_is_gone(call: Call, copied: Path) -> None:
    part = next((copied / "tables" / "pool").iterdir())
    part.unlink()
    assert re.search(rf"^pool +tables/pool/{part.name} is missing or damaged", call("status", copied).out, re.M)


def test_the_settings_in_force_are_a_settings_file(call: Call, sample_run: SampleRun, tmp_path: Path) -> None:
    shown = call("status", sample_run.folder, "--settings")
    file = tmp_path / "in force.yaml"
    file.write_text(shown.out)
    assert (shown.code, shown.err) == (0, "")
    assert cli.load_settings(config=file) == cli.load_settings()


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


# export, audit, doctor


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


def test_an_audit_with_other_settings(call: Call, copied: Path, served: Environment) -> None:
    before = tables_of(copied)
    done = run_command([DARKLODE, "audit", str(copied), "--set", "audit.bootstrap=50"], served)
    assert (done.code, done.err) == (0, "")
    assert "audit: bootstrap: 1000 → 50\n✓ audit " in done.out
    assert re.search(r"^bm25 +[01]\.\d{3} ", done.out, re.M)
    assert not CONTROL.search(done.out)
    after = tables_of(copied)
    assert {name.split("/")[0] for name in before.keys() ^ after.keys()} <= {"audit_retrievers"}
    assert yaml.safe_load(call("status", copied, "--settings").out)["audit"]["bootstrap"] == 50
    assert call("status", copied).out.count(" stands ") == len(STAGES)


def test_doctor_on_a_healthy_machine(call: Call, monkeypatch: pytest.MonkeyPatch, served: Environment) -> None:
    monkeypatch.setenv("PREFECT_API_URL", served["PREFECT_API_URL"])
    shown = call("doctor")
    assert (shown.code, shown.err) == (0, "")
    assert re.search(r"^prefect +ok +3\.8", shown.out, re.M)
    assert re.search(r"^prefect server +ok +PREFECT_API_URL answers", shown.out, re.M)
    assert re.search(r"^preset embedded +ok +judge embedded", shown.out, re.M)


def test_doctor_finds_a_server_that_does_not_answer(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    shown = call("doctor")
    assert shown.code == 1
    assert re.search(r"^prefect server +missing +PREFECT_API_URL does not answer", shown.out, re.M)


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


def one_line(shown: Outcome, message: str, code: int = 1) -> None:
    """Assert an exit code and a single readable line on stderr."""
    assert shown.code == code, shown
    assert re.fullmatch(rf"error: [^\n]*{message}[^\n]*\n", shown.err), shown.err
    assert not CONTROL.search(shown.err)


def test_a_flow_that_fails_says_why_in_one_line(
    sample_run: SampleRun, copied: Path, served: Environment, tmp_path: Path
) -> None:
    empty = tmp_path / "[red]empty[/]"
    empty.mkdir(parents=True)
    nobody = dict(served) | {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    cases = [
        (build_command(tmp_path / "a", docs=tmp_path / "none"), served, "none does not exist; name a file or a folder"),
        (build_command(tmp_path / "b", docs=empty), served, r"\[red\]empty\[/\] holds no files; name a file"),
        (build_command(copied), served, "another process is writing to .*/run; wait for it or choose another --out"),
        ([DARKLODE, "audit", str(empty)], served, r"\[red\]empty\[/\] holds no run; make one with `darklode build"),
        (build_command(tmp_path / "c"), nobody, "PREFECT_API_URL does not answer; start that server"),
    ]
    with Run(str(copied)).lock(), ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda case: run_command(case[0], case[1]), cases))
    for outcome, (_, _, message) in zip(outcomes, cases, strict=True):
        one_line(outcome, message)
    assert tables_of(copied) == tables_of(sample_run.folder)


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


# hostile texts and an interrupted build


def test_hostile_names_and_texts_are_printed_as_they_are(call: Call, served: Environment, tmp_path: Path) -> None:
    docs = tmp_path / "[red]docs[/]"
    docs.mkdir(parents=True)
    subjects = "invoice webhook token refund tenant export locale agent ticket survey".split()
    for subject in subjects:
        text = (
            f"# [bold]{subject}[/]\n\nThe {subject} [red]page[/red] explains how a \x1b[31m{subject}\x07 is made [/].\n"
        )
        (docs / f"[blink]{subject}[bold.md").write_text(text)
    (docs / "[link=x]notes.zip").write_bytes(b"")
    queries = tmp_path / "queries.txt"
    queries.write_text("".join(f"how is the [red]{s}[/red] \x1b[31m made [/]\n[/] {s} [bold\n" for s in subjects))
    out = tmp_path / "[/] [dim]run"
    printed = built(build_command(out, "--keep-all-queries", docs=docs, queries=queries), served)
    assert f" {out}/views.sql\n" in printed
    assert not CONTROL.search(printed)
    shown = call("query", out, "SELECT file, reason FROM rejects UNION ALL SELECT text, doc_id FROM chunks ORDER BY 1")
    assert (shown.code, shown.err) == (0, "")
    assert "[link=x]notes.zip" in shown.out
    assert "[blink]webhook[bold.md" in shown.out
    assert not CONTROL.search(shown.out)
    assert f"{out}\n" in call("status", out).out


def test_ctrl_c_ends_with_130_and_the_same_command_goes_on(
    copied: Path, sample_run: SampleRun, served: Environment, tmp_path: Path
) -> None:
    for stage in ("search", "pool", "judge", "label", "triplets", "audit", "funnel"):
        (copied / "manifests" / f"{stage}.json").unlink()
    log, errors = tmp_path / "out.txt", tmp_path / "err.txt"
    with log.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(build_command(copied), env=served, stdout=out, stderr=err)
    wait_for(lambda: process.poll() is not None or b"\nsearch: " in log.read_bytes(), "the stage search")
    process.send_signal(signal.SIGINT)
    assert (process.wait(START_SECONDS), errors.read_text()) == (130, "stopped; the same command goes on from here\n")
    assert not (copied / "manifests" / "search.json").exists()
    printed = built(build_command(copied), served)
    assert "\nsearch: not run yet\n✓ search " in printed
    assert tables_of(copied) == tables_of(sample_run.folder)
