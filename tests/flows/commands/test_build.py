"""`darklode build`: what it prints, what it leaves on disk, how it fails, and how it goes on."""

import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from darklode.flows.commands.build import show_audit
from darklode.flows.commands.doctor import missing_packages
from darklode.flows.console import console
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.settings import Settings
from helpers.commands import (
    CONTROL,
    DARKLODE,
    STAGES,
    START_SECONDS,
    Call,
    Environment,
    SampleRun,
    build_command,
    built,
    one_line,
    run_inside,
    tables_of,
    wait_for,
)
from helpers.finished_run import finished_run
from helpers.runs import written

pytestmark = pytest.mark.server


def test_a_build_prints_what_came_in_what_came_out_and_where_it_is(sample_run: SampleRun) -> None:
    printed = sample_run.printed
    assert printed.startswith("Checking inputs, settings, servers and models.\n")
    for stage in STAGES:
        assert f"{stage}: not run yet\n✓ {stage} " in printed
    assert re.search(r"^Funnel$.*^ingest\.documents +\d+ +81 +rows +not a document format", printed, re.M | re.S)
    assert re.search(r"^clean\.language +\d+ +\d+ +queries +language \w\w \d+", printed, re.M)
    assert re.search(r"^length +\d+ +0\.\d+ +clean\.min_percentile, clean\.max_percentile$", printed, re.M)
    assert re.search(r"mean cosine distance of 0\.\d\d to the kept query", printed)
    assert "--preset triplets keeps all distinct queries" in printed
    assert re.search(r"^bm25 +[01]\.\d{3} +[01]\.\d{3}", printed, re.M)
    assert re.search(r"^retriever +@10 +@60 +@420 +95 %", printed, re.M)
    shallow = re.findall(r"^(?:bm25|ppmi|character|\w+_feedback) +([01]\.\d{3})", printed, re.M)
    assert len(shallow) == 7
    assert len(set(shallow)) > 3, "at ten they differ"
    assert "calibrate         nothing to do" in printed
    assert "Three example triplets" in printed
    assert re.search(r"Examples of dropped queries:.*duplicates: \S.* language: \S", printed, re.DOTALL)
    assert f"\nNext:\n  darklode report {sample_run.folder} --open" in printed
    assert "The labels come from the embedded scorer, not from an LLM" in printed
    assert ("\nFor better labels without an API key or server" in printed) == (not missing_packages("local"))
    for place in ("report.html", "README.md", "tables/", "tables/triplets/", "views.sql", "settings.yaml"):
        assert f" {sample_run.folder}/{place}\n" in printed
        assert (sample_run.folder / place).exists()


def test_the_audit_of_given_judgments_says_what_all_retrievers_find(tmp_path: Path) -> None:
    """Given positives that no retriever found count too, so the recall of the whole pool is not 1."""
    run = finished_run(str(tmp_path / "run"))

    def shown() -> str:
        with console.capture() as capture:
            show_audit(run, Settings())
        return " ".join(capture.get().split())

    assert "Recall is relative to the pool" in shown()
    written(run, "judgments", [{"tenant": "acme", "query_id": "q 1", "item_id": "plain#4"}])
    assert re.search(r"All retrievers together find [01]\.\d{3} of the positives in their first 60\.", shown())


def test_no_terminal_no_control_characters(sample_run: SampleRun) -> None:
    assert not CONTROL.search(sample_run.printed)


@pytest.mark.slow
def test_a_second_build_stands_and_rewrites_nothing(copied: Path, served: Environment) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        found = (path for name in ("tables", "manifests") for path in (copied / name).rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in found}

    before = files()
    printed = built(build_command(copied), served)
    for stage in [*STAGES, "funnel"]:
        assert re.search(rf"^✓ {stage} .* up to date$", printed, re.M), stage
    assert "not run yet" not in printed
    assert files() == before


@pytest.mark.slow
def test_a_terminal_shows_bars(copied: Path, served: Environment) -> None:
    ours, theirs = pty.openpty()
    command = build_command(copied, "--set", "evaluate.n_resamples=50")
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


def test_a_flow_that_fails_says_why_in_one_line(
    sample_run: SampleRun, copied: Path, served: Environment, tmp_path: Path
) -> None:
    empty = tmp_path / "[red]empty[/]"
    empty.mkdir(parents=True)
    nobody = dict(served) | {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    cases = [
        (build_command(tmp_path / "a", docs=tmp_path / "none"), served, "none does not exist; give a file or a folder"),
        (build_command(tmp_path / "b", docs=empty), served, r"\[red\]empty\[/\] contains no documents; give a folder"),
        (build_command(copied), served, "another process .*is writing to .*/run; wait for it or choose another --out"),
        ([DARKLODE, "audit", str(empty)], served, r"\[red\]empty\[/\] holds no run; make one with `darklode build"),
        (build_command(tmp_path / "c"), nobody, "PREFECT_API_URL does not answer"),
    ]
    with Run(str(copied)).lock():
        for command, environment, message in cases:
            one_line(run_inside(command, environment), message)
    assert tables_of(copied) == tables_of(sample_run.folder)


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert (process.wait(START_SECONDS), errors.read_text()) == (
        130,
        "interrupted; run the same command again to resume\n",
    )
    assert not (copied / "manifests" / "search.json").exists()
    printed = built(build_command(copied), served)
    assert "\nsearch: not run yet\n✓ search " in printed
    assert tables_of(copied) == tables_of(sample_run.folder)


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_leaves_it_as_it_was(copied: Path, served: Environment) -> None:
    for stage in ("search", "pool", "judge", "label", "triplets", "audit", "funnel"):
        (copied / "manifests" / f"{stage}.json").unlink()
    primary, secondary = pty.openpty()
    command = build_command(copied)
    with subprocess.Popen(
        command, env=served, stdin=secondary, stdout=secondary, stderr=secondary, start_new_session=True
    ) as process:
        os.close(secondary)
        seen = b""
        while HIDDEN not in seen or b"search" not in seen[seen.index(HIDDEN) :]:
            seen += os.read(primary, 4096)
        process.send_signal(signal.SIGINT)
        after = b"".join(iter(lambda: _read(primary), b""))
        assert process.wait(START_SECONDS) == 130
    os.close(primary)
    assert after.rindex(SHOWN) > after.rfind(HIDDEN)
    line_alone = b"\r\x1b[2K" + SHOWN + b"\rinterrupted; run the same command again to resume\r\n"
    assert after.endswith(line_alone), after[-300:]


HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"
"""What a terminal is told to hide and to show its cursor."""


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side is closed
        return b""
