"""Everything that docs/get-started/tutorial.md tells its reader to do, done: real commands, a real browser."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from sentence_transformers import SentenceTransformer

from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.duckdb_views import query
from darklode.pipeline.export.formats import EXPORTS
from darklode.pipeline.validate.review.journal import AnswerJournal, current_answers
from helpers import tutorial
from helpers.commands import DARKLODE, Environment, Outcome, background, run_command, wait_for
from helpers.runs import SAMPLE

PAIRS = 10
HELD_BACK = 3
ADDRESS = re.compile(r"http://127\.0\.0\.1:8765/\S+/")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with what the reader has: the sample, a handbook, and queries in a column of another name."""
    shutil.copytree(SAMPLE, tmp_path / "data" / "sample")
    shutil.copytree(SAMPLE / "documents", tmp_path / "handbook")
    with (SAMPLE / "queries.csv").open(encoding="utf-8", newline="") as given:
        texts = [row["query"] for row in csv.DictReader(given)]
    with (tmp_path / "searches.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["search_term"], *([text] for text in texts)])
    return tmp_path


@pytest.mark.slow
def test_the_tutorial_works_as_it_stands(repository: Path, alone: Environment, browser: Browser) -> None:
    for words in tutorial.commands():
        assert words[0] == "darklode"
        command = [DARKLODE, *words[1:]]
        if words[1] == "review":
            review(command, alone, repository, browser)
            continue
        outcome = run_command(command, alone, repository)
        held_back = outcome.code == HELD_BACK and words[1] == "adapt"
        assert held_back or (outcome.code, outcome.err) == (0, ""), (words, outcome)
        check(words, outcome.out, repository)
        if words[1] == "adapt" and "--dry-run" not in words:
            decided(repository / words[words.index("--out") + 1], outcome)
    assert labelled(repository) == PAIRS
    assert sorted(path.name for path in (repository / "out").iterdir()) == sorted(
        [*EXPORTS.own_kinds(), "public", "withheld"]
    )


def check(words: list[str], printed: str, repository: Path) -> None:
    """Look at what a command left."""
    match words[1]:
        case "report":
            assert "</html>" in (repository / words[2] / "report.html").read_text(encoding="utf-8")
        case "validate":
            reviewed = query(Run(str(repository / words[2])), "SELECT count(*) AS n FROM reviews")
            assert reviewed["n"].to_pylist() == [PAIRS]
            assert "kappa" in printed
        case "diff":
            assert "judge.threshold" in printed
            assert "Flipped labels" in printed
        case "generate":
            assert " queries of default, " in printed
            assert "</html>" in (repository / words[words.index("--out") + 1] / "report.html").read_text()
        case "build" if "split.generated_queries=runs/generated" in words:
            asked = "SELECT count(*) AS n FROM queries WHERE query_id LIKE 'generated%' AND split = 'train'"
            assert query(Run(str(repository / "runs" / "second")), asked)["n"][0].as_py() > 0
        case "laws" if words[2] == "plan":
            assert printed.count("labelled queries: not identifiable yet") > 0
            assert "runs/generated" in printed
        case "export":
            assert any((repository / words[words.index("--to") + 1]).rglob("*"))


def decided(adapted: Path, outcome: Outcome) -> None:
    """Whatever the verdict is, exit code, message and folder say the same, and the folder loads."""
    ships = json.loads((adapted / "adapter.json").read_text())["shipped"] == "adapted"
    said, code = ("is adapted: ", 0) if ships else ("is the base itself: ", HELD_BACK)
    assert (outcome.code, said in (outcome.out if ships else outcome.err)) == (code, True), outcome
    assert "own positive" in outcome.out
    assert SentenceTransformer(str(adapted / "query_encoder")).encode(["reset my password"]).shape == (1, 384)


def review(command: list[str], environment: Environment, repository: Path, browser: Browser) -> None:
    """Label PAIRS pairs by keyboard, as the page's reader does, and stop the command with Ctrl-C."""
    log = repository / "review.log"
    with background(command, environment, log, repository):
        wait_for(lambda: ADDRESS.search(log.read_text()), "the page's address")
        page = browser.new_page()
        page.goto(ADDRESS.findall(log.read_text())[0])
        page.get_by_role("textbox").first.fill("Ann")
        for key in ["Enter", *("1" if number % 2 else "0" for number in range(PAIRS))]:
            page.wait_for_selector("html[data-open]")  # keys count once the page has been seen for a moment
            with page.expect_navigation():
                page.keyboard.press(key)
        page.close()


def labelled(repository: Path) -> int:
    return current_answers(AnswerJournal(Store(str(repository / "runs" / "first"))).read()).num_rows
