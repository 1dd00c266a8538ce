import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from darklode.flows.commands.init import OFFERED_KEYS, OFFERED_LOG_KEYS, settings_file
from darklode.flows.config import load_settings, read_project
from helpers.commands import DARKLODE, Call, Environment, built, run_command
from helpers.runs import SAMPLE


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a document and queries in a column of an unusual name, which is the working directory."""
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook" / "key.md").write_text("# Keys\n\nPress reset to get a new key.\n")
    (tmp_path / "searches.csv").write_text("search_term,n\nhow to reset the key,3\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_options_alone_write_a_file_that_the_commands_read(call: Call, data: Path) -> None:
    options = ["--docs", "handbook", "--queries", "searches.csv", "--column", "queries.text=search_term"]
    judge = ["--judge-url", "http://127.0.0.1:8000/v1", "--judge-model", "m", "--language", "", "--license", "CC0: all"]
    shown = call("init", *options, *judge)
    assert (shown.code, shown.err) == (0, "")
    assert "handbook: 1 file, markdown" in shown.out
    assert "darklode build --config darklode.yaml" in shown.out
    chosen = load_settings(config=data / "darklode.yaml")
    assert chosen.ingest.queries.columns.text == "search_term"
    assert (chosen.clean.language, chosen.card.license) == (None, "CC0: all")
    assert (chosen.judge.kind, chosen.judge.base_url, chosen.judge.model) == ("llm", ("http://127.0.0.1:8000/v1",), "m")
    found = read_project(data / "darklode.yaml")
    assert found.path("docs", None, "--docs") == str(data / "handbook")
    assert found.path("out", None, "--out") == str(data / "runs" / "benchmark")
    assert found.path("out", "elsewhere", "--out") == "elsewhere"
    with pytest.raises(typer.BadParameter, match=r"Missing option '--logs', or paths\.logs"):
        found.path("logs", None, "--logs")


def test_several_languages_are_a_list(call: Call, data: Path) -> None:
    shown = call("init", "--docs", "handbook", "--queries", SAMPLE, "--language", "en, zh")
    assert (shown.code, shown.err) == (0, "")
    assert load_settings(config=data / "darklode.yaml").clean.language == ("en", "zh")


@pytest.mark.slow
def test_the_file_builds_from_anywhere(call: Call, data: Path, alone: Environment, tmp_path: Path) -> None:
    call("init", "here/mine.yaml", "--docs", SAMPLE, "--queries", SAMPLE, "--runs", "runs", "--license", "CC0")
    printed = built([DARKLODE, "build", "--config", str(data / "here" / "mine.yaml")], alone, run_command)
    run = data / "runs" / "benchmark"
    assert str(run) in printed
    assert "CC0" in (run / "README.md").read_text()


@pytest.mark.parametrize("preset", ["embedded", "local"])
def test_every_commented_setting_is_that_of_the_preset(tmp_path: Path, preset: str) -> None:
    given = dict.fromkeys(("docs", "queries", "logs", "out", "mined"), "x")
    text = settings_file("darklode.yaml", given, preset, {})
    body = text[text.index("preset:") :]
    assert yaml.safe_load(body) == {"preset": preset}
    every = tmp_path / "every.yaml"
    every.write_text(re.sub(r"^# ", "", body, flags=re.MULTILINE))
    assert load_settings(preset, every).model_dump(exclude={"pool"}) == load_settings(preset).model_dump(
        exclude={"pool"}
    )
    told = [name for name in OFFERED_KEYS + OFFERED_LOG_KEYS if f" {name.rpartition('.')[2]}: " not in body]
    assert not told


@pytest.mark.parametrize("value", ["a: b # c", "'\"", "- x", "null", "naïve ☃\n", "{{ x }}", "*a"])
def test_a_chosen_text_comes_back_as_it_was(value: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(settings_file("x.yaml", {"docs": value}, "embedded", {"card.name": value}), encoding="utf-8")
    assert load_settings(config=file).card.name == value
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["paths"] == {"docs": value}


def test_what_is_missing_is_said_where_nobody_can_be_asked(call: Call, data: Path) -> None:
    assert "--docs is required" in call("init").err
    assert "queries or a search log are required" in call("init", "--docs", "handbook").err
    (data / "odd.csv").write_text("a,b\n1,2\n")
    unnamed = call("init", "--docs", "handbook", "--queries", "odd.csv")
    assert (unnamed.code, "use --column queries.text=NAME. Columns: a, b" in unnamed.err) == (2, True)
    other = call("init", "--docs", "handbook", "--queries", "searches.csv", "--column", "queries.txt=n")
    assert (other.code, "unknown column queries.txt; did you mean text?" in other.err) == (2, True)
    assert "does not exist" in call("init", "--docs", "handbook", "--queries", "other.csv").err
    assert not (data / "darklode.yaml").exists()


@pytest.mark.parametrize(
    ("name", "content", "remarked"),
    [
        (
            "2026-03-01.csv",
            "when;search_term;doc;is_clicked\n2026-03-01T10:00:00Z;reset;key.md;1\n".encode("utf-16"),
            2,
        ),
        ("searches.log", b'{"when": "2026-03-01", "search_term": "reset", "doc": "key.md", "is_clicked": 1}\n', 0),
    ],
)
def test_a_strange_log_is_written_down_so_that_it_is_read(
    call: Call, data: Path, name: str, content: bytes, remarked: int
) -> None:
    (data / "log").mkdir()
    (data / "log" / name).write_bytes(content)
    shown = call("init", "--docs", "handbook", "--logs", "log")
    assert (shown.code, shown.err) == (0, "")
    assert "  query: column search_term, from its name; --column logs.query=NAME overrides it" in shown.out
    assert sum(words in shown.out for words in ("UTF-16", "semicolons")) == remarked
    logs = load_settings(config=data / "darklode.yaml").logs
    columns = logs.columns.model_dump(exclude_none=True)
    assert columns == {"timestamp": "when", "query": "search_term", "doc_id": "doc", "clicked": "is_clicked"}
    assert logs.format == ("jsonl" if name.endswith(".log") else "auto")
    checked = call("mine", "--config", "darklode.yaml", "--check")
    assert (checked.code, checked.err) == (0, "")


def test_a_file_is_never_overwritten(call: Call, data: Path) -> None:
    (data / "darklode.yaml").write_text("seed: 1\n")
    shown = call("init", "--docs", "handbook", "--queries", SAMPLE)
    assert (shown.code, (data / "darklode.yaml").read_text()) == (1, "seed: 1\n")
    assert "already exists" in shown.err


def test_a_setting_out_of_bounds_leaves_no_file(call: Call, data: Path) -> None:
    given = ["--docs", "handbook", "--queries", SAMPLE, "--judge-url", "http://user:secret@127.0.0.1/v1"]
    shown = call("init", *given, "--judge-model", "m")
    assert shown.code == 2
    assert "judge.base_url" in shown.err
    assert "secret" not in shown.err
    assert not (data / "darklode.yaml").exists()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("paths: {doc: x}\n", "did you mean paths.docs"),
        ("paths: here\n", "paths holds docs, queries"),
        ("path: {docs: x}\n", "there is no setting path"),
    ],
)
def test_a_mistake_in_the_file_is_named(call: Call, text: str, error: str, data: Path) -> None:
    (data / "x.yaml").write_text(text)
    assert error in call("build", "--config", "x.yaml").err


def test_it_asks_a_person_for_the_rest_and_shows_its_guess(data: Path, alone: Environment) -> None:
    (data / "clicks").mkdir()
    (data / "clicks" / "export.log").write_text('{"ts": "2026-03-01", "term": "key", "doc": "key.md", "click": 1}\n')
    answers = {
        "Documents (file or folder) [handbook]": "",
        "- for none) [searches.csv]": "",
        "- for none) [clicks]": "",
        "Parent folder of the runs": "s3://bucket/runs",
        "is the text? (search_term, n) [search_term]": "n",
        "(csv, jsonl, parquet, ubi) [jsonl]": "",
        "is the timestamp? (ts, term, doc, click) [ts]": "",
        "is the query? (ts, term, doc, click) [term]": "",
        "is the doc_id? (ts, term, doc, click) [doc]": "",
        "Judge: URL": "",
        "License of": "",
    }
    asked(answers, alone)
    found = read_project(data / "darklode.yaml")
    assert found.paths["out"] == "s3://bucket/runs/benchmark"
    assert [found.paths[name] for name in ("docs", "logs")] == [str(data / "handbook"), str(data / "clicks")]
    chosen = load_settings(config=data / "darklode.yaml")
    assert (chosen.ingest.queries.columns.text, chosen.logs.format) == ("n", "jsonl")


def test_what_is_proposed_can_be_refused(data: Path, alone: Environment) -> None:
    asked(
        {"[handbook]": "", "[searches.csv]": "-", "- for none)": "-"}, alone, "queries or a search log are required", 2
    )


def asked(answers: dict[str, str], environment: Environment, last: str = "Next:", code: int = 0) -> None:
    """Answer the questions of `darklode init` on a terminal, in their order."""
    primary, secondary = pty.openpty()
    command = [sys.executable, "-c", "from darklode.flows.cli import main; main()", "init", "--language", "de"]
    with subprocess.Popen(command, env=environment, stdin=secondary, stdout=secondary, stderr=secondary) as process:
        os.close(secondary)
        seen = ""
        for question, answer in answers.items():
            seen += _until(primary, question)
            os.write(primary, f"{answer}\n".encode())
        seen += _until(primary, last)
        assert process.wait(timeout=60) == code, seen
    os.close(primary)


def _until(terminal: int, text: str) -> str:
    """Read on until a text comes; a terminal of 80 columns breaks no line of a question."""
    seen = ""
    while text not in seen:
        seen += os.read(terminal, 4096).decode()
    return seen


@pytest.mark.parametrize(
    ("option", "language"), [([], "documents"), (["--language", "en"], "en"), (["--language", ""], None)]
)
def test_languages_are_those_of_the_documents_unless_named(
    call: Call, data: Path, option: list[str], language: str | None
) -> None:
    shown = call("init", "--docs", "handbook", "--queries", SAMPLE, *option)
    assert (shown.code, shown.err) == (0, "")
    assert load_settings(config=data / "darklode.yaml").clean.language == language
