"""darklode review as a process: its address, its end, kill -9, sheets, and what it refuses."""

import csv
import http.client
import os
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser

from darklode.flows.commands.review import lock_review
from darklode.flows.runs import read_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.validate.purposes import read_purpose
from darklode.pipeline.validate.review.journal import AnswerJournal, current_answers
from helpers.commands import DARKLODE, Call, Environment, background, free_port, run_command, wait_for
from helpers.review_run import TOKEN, review_run, served

ADDRESS = re.compile(r"^http://\S+/$", re.MULTILINE)


@dataclass(frozen=True)
class Running:
    """A server in a process of its own."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str

    def ask(self, method: str, path: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.netloc, timeout=30)
        form = {"Content-Type": "application/x-www-form-urlencoded"} if fields else {}
        try:
            connection.request(method, f"{place.path}{path}", urlencode(fields or {}), form)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()


@contextmanager
def running(run: Run, environment: Environment, folder: Path, *options: str) -> Iterator[Running]:
    """`darklode review` until the end of the block, if it was not ended before."""
    log = folder / "review.log"
    with background([DARKLODE, "review", run.store.url, *options], environment, log, folder) as process:
        wait_for(lambda: process.poll() is not None or ADDRESS.search(log.read_text()), "the address")
        found = ADDRESS.search(log.read_text())
        assert found, log.read_text()
        yield Running(process, log, found[0])


def kept(run: Run) -> dict[str, object]:
    return {row["chunk_id"]: row["relevance"] for row in current_answers(AnswerJournal(run.store).read()).to_pylist()}


@pytest.mark.slow
def test_a_review_says_where_it_is_and_how_far_it_came(run: Run, alone: Environment, tmp_path: Path) -> None:
    review_run(run.store.url)
    with running(run, alone, tmp_path, "--port", "0") as server:
        status, body = server.ask("GET", "pair?reviewer=Ann")
        assert status == 200
        assert "precision of the judge: too few labels for an interval; goal ± .05" in body
        name = re.search(r'data-pair="(\w+)"', body)
        assert name
        assert server.ask("POST", "pair?reviewer=Ann", {"pair": name[1], "answer": "1"})[0] == 303
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 0
        said = server.log.read_text()
    assert "20 pairs of 4 queries, 7 of them for every reviewer; the judge's verdicts are hidden\n" in said
    assert "\n0 of 20 pairs are labelled\n" in said
    assert said.endswith("\n1 of 20 pairs are labelled (Ann 1). Run the same command again to continue.\n")
    token = urlsplit(server.url).path.strip("/")
    assert said.count(token) == 1  # the address, and no log of requests
    assert (tmp_path / "run" / "review" / "token").read_text() == token


@pytest.mark.slow
def test_kill_9_loses_no_answer_that_was_confirmed(
    run: Run, alone: Environment, tmp_path: Path, browser: Browser
) -> None:
    review_run(run.store.url, 400)
    port = str(free_port())
    confirmed: list[str] = []
    tab = browser.new_page()
    with running(run, alone, tmp_path, "--port", port) as server:
        tab.goto(f"{server.url}pair?reviewer=Eve")
        first = tab.locator("#passage").get_attribute("data-pair")

        def label(reviewer: str) -> None:
            with suppress(OSError, http.client.HTTPException):
                while found := re.search(r'data-pair="(\w+)"', server.ask("GET", f"pair?reviewer={reviewer}")[1]):
                    if server.ask("POST", f"pair?reviewer={reviewer}", {"pair": found[1], "answer": "1"})[0] == 303:
                        confirmed.append(f"{reviewer} {found[1]}")

        people = [threading.Thread(target=label, args=(name,)) for name in ("Ann", "Ben", "Cem")]
        for one in people:
            one.start()
        wait_for(lambda: len(confirmed) >= 40, "answers")
        server.process.kill()
        server.process.wait(30)
        for one in people:
            one.join()
    on_disk = {f"{answer.reviewer} {answer.pair}" for answer in AnswerJournal(run.store).read()}
    assert set(confirmed) <= on_disk
    assert len(on_disk) < 400 + 2 * 134  # it was killed in the middle
    with running(run, alone, tmp_path, "--port", port) as again:
        assert again.url == server.url
        n_labelled = len({one.split()[1] for one in on_disk})
        progress = re.search(rf"^{n_labelled} of 400 pairs are labelled \((.+)\)$", again.log.read_text(), re.M)
        assert progress
        n_by_reviewer = Counter(one.split()[0] for one in on_disk)
        assert sorted(progress[1].split(", ")) == sorted(f"{name} {count}" for name, count in n_by_reviewer.items())
        with tab.expect_navigation():  # the page that was open goes on
            tab.keyboard.press("0")
        assert tab.locator("#passage").get_attribute("data-pair") not in (None, first)
    tab.close()
    assert {f"{answer.reviewer} {answer.pair}" for answer in AnswerJournal(run.store).read()} - on_disk == {
        f"Eve {first}"
    }


@pytest.mark.slow
def test_a_busy_port_and_a_second_review_are_refused(run: Run, alone: Environment, tmp_path: Path) -> None:
    review_run(run.store.url)
    other = review_run(str(tmp_path / "other"))
    with running(run, alone, tmp_path, "--port", "0") as server:
        busy = str(urlsplit(server.url).port)
        taken = run_command([DARKLODE, "review", other.store.url, "--port", busy], alone)
        second = run_command([DARKLODE, "review", run.store.url, "--port", "0"], alone)
    assert (taken.code, second.code) == (1, 1)
    assert "already in use" in taken.err
    assert "--port 0 picks a free one" in taken.err
    assert "is already being reviewed" in second.err
    assert "Traceback" not in taken.err + second.err


def test_a_second_review_on_s3_is_refused(bucket: str) -> None:
    with lock_review(Run(bucket)):
        owner = rf"another process \(\S+, PID {os.getpid()}, since \S+\) is writing to {bucket}/review; use its page"
        with pytest.raises(ArtifactError, match=owner), lock_review(Run(bucket)):
            pytest.fail("two processes take answers")
        with Run(bucket).lock():  # a build may go on
            pass


@pytest.mark.slow
def test_a_run_on_s3(bucket: str) -> None:
    run = review_run(bucket)
    with served(run) as page:
        place = urlsplit(page.url)
        for number in range(3):
            connection = http.client.HTTPConnection(place.netloc, timeout=30)
            fields = urlencode({"pair": page.pairs[number].name, "answer": "1"})
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", f"/{TOKEN}/pair?reviewer=Ann", fields, form)
            assert connection.getresponse().status == 303
            connection.close()
        assert page.pairs.neighbors(0)[1] is not None
    with served(run):
        assert kept(run) == {"doc0#0": 1, "doc0#1": 1, "doc1#2": 1}


# Sheets


def test_a_sheet_there_and_back(call: Call, run: Run, tmp_path: Path) -> None:
    review_run(run.store.url)
    sheet = tmp_path / "sheet.csv"
    out = call("review", run.store.url, "--export-sheet", sheet, "--reviewer", " Ann ")
    assert (out.code, out.err) == (0, "")
    assert out.out.startswith(f"Wrote 20 pairs for Ann to {sheet}\n")
    assert "(0: not relevant, 1: relevant, or skip)" in out.out
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    rows[0]["relevance"], rows[1]["relevance"], rows[2]["relevance"] = "1", "skip", "perhaps"
    with sheet.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    told = call("review", run.store.url, "--import-sheet", sheet, "--reviewer", "Ann")
    assert told.code == 1
    assert "2 new answers, 0 already known, 17 rows without an answer\n1 of 20 pairs are labelled (Ann 1)\n" in told.out
    assert re.search(r"1 rejected rows\n.*\n *4 +relevance 'perhaps' is none of 0, 1, skip", told.out)
    assert kept(run) == {"doc0#0": 1, "doc0#1": None}
    again = call("review", run.store.url, "--import-sheet", sheet, "--reviewer", "ann")
    assert "0 new answers, 2 already known" in again.out
    refused = call("review", run.store.url, "--export-sheet", sheet, "--reviewer", "Ann")
    assert (refused.code, "exists" in refused.err) == (1, True)


def test_grades_may_be_given_for_a_judge_without_grades(call: Call, run: Run, tmp_path: Path) -> None:
    review_run(run.store.url)
    sheet = tmp_path / "sheet.csv"
    out = call("review", run.store.url, "--export-sheet", sheet, "--reviewer", "Ann", "--max-grade", "3")
    assert "(0: not relevant, 1, 2, 3, or skip)" in out.out
    text = sheet.read_text(encoding="utf-8-sig").splitlines()
    rows = list(csv.DictReader(text))
    rows[0]["relevance"] = "3"
    with sheet.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    binary = call("review", run.store.url, "--import-sheet", sheet, "--reviewer", "Ann")
    assert "relevance '3' is none of 0, 1, skip" in binary.out
    told = call("review", run.store.url, "--import-sheet", sheet, "--reviewer", "Ann", "--max-grade", "3")
    assert (told.code, kept(run)) == (0, {"doc0#0": 3})


@pytest.mark.parametrize(
    ("options", "reason", "code"),
    [
        (("--export-sheet", "x.csv"), "together with --reviewer NAME", 2),
        (
            ("--export-sheet", "x.csv", "--import-sheet", "x.csv", "--reviewer", "Ann"),
            "use one of --export-sheet",
            2,
        ),
        (("--import-sheet", "x.csv", "--reviewer", " "), "--reviewer must be a name", 2),
        (("--import-sheet", "gone.csv", "--reviewer", "Ann"), "gone.csv cannot be read", 1),
        (("--host", "0.0.0.0"), "requires --allow-host NAME", 2),
        (("--allow-host", "*"), "must be a host name", 2),
        (("--host", "203.0.113.7", "--port", "0"), "203.0.113.7, port 0: ", 1),
        (("--set", "review.shown=1"), "there is no setting review.shown", 2),
        (("--for", "fun"), "--for must be one of validate, evaluate, calibrate, teach", 2),
        (("--new-sample",), "--new-sample needs --for PURPOSE", 2),
    ],
)
def test_what_is_wrong_is_said(call: Call, run: Run, options: tuple[str, ...], reason: str, code: int) -> None:
    review_run(run.store.url)
    refused = call("review", run.store.url, *options)
    assert (refused.code, reason in refused.err) == (code, True), refused


def test_a_sample_is_drawn_where_there_is_none(call: Call, run: Run, tmp_path: Path) -> None:
    review_run(run.store.url)
    (tmp_path / "run" / "manifests" / "review_sample.json").unlink()
    options = ("--set", "review.query_share=1", "--set", "review.max_pairs=7", "--reviewer", "Ann")
    shown = call("review", run.store.url, "--export-sheet", tmp_path / "sheet.csv", *options)
    assert (shown.code, "7 pairs for Ann" in shown.out) == (0, True), shown
    assert run.tables("review_sample").rows("review_sample") == 7
    assert read_run(run).settings.review.max_pairs == 7  # which validation then reads


def test_labels_are_not_left_behind_by_another_purpose(call: Call, run: Run, tmp_path: Path) -> None:
    """The purpose is kept; another one needs --new-sample once a pair is labelled."""
    review_run(run.store.url)
    sheet = tmp_path / "sheet.csv"

    def export(*options: str) -> str:
        sheet.unlink(missing_ok=True)
        shown = call("review", run.store.url, "--export-sheet", sheet, "--reviewer", "Ann", *options)
        assert (shown.code, shown.err) == (0, "")
        return shown.out

    assert "precision of the judge" in export()
    assert "precision of the judge" not in export("--for", "calibrate")
    assert "precision of the judge" not in export(), "the purpose is that of the run"
    with sheet.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with sheet.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerow(rows[0] | {"relevance": "1"})
    assert call("review", run.store.url, "--import-sheet", sheet, "--reviewer", "Ann").code == 0
    assert call("review", run.store.url, "--import-sheet", sheet, "--reviewer", "Ann", "--for", "calibrate").code == 0
    refused = call("review", run.store.url, "--for", "validate")
    assert refused.code == 2
    assert "--new-sample" in refused.err
    assert read_purpose(run.store) == "calibrate"
    assert "precision of the judge" in export("--for", "validate", "--new-sample", "--until", "0.03")
    assert len(AnswerJournal(run.store).read()) == 1


def test_a_run_without_verdicts_and_no_run(call: Call, run: Run, tmp_path: Path) -> None:
    review_run(run.store.url)
    (tmp_path / "run" / "manifests" / "given_verdicts.json").unlink()
    (tmp_path / "run" / "manifests" / "review_sample.json").unlink()
    assert "has no table verdicts yet; run its command to completion" in call("review", run.store.url).err
    assert "holds no run" in call("review", tmp_path / "none").err
