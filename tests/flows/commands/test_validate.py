"""darklode validate: a reviewed run on the screen, on its card, at the gate, and back in a build."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darklode.flows.jobs.validate_benchmark import draw_sample
from darklode.flows.runs import read_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.validate.review.journal import AnswerJournal, ReviewAnswer
from helpers.commands import DARKLODE, Environment, Outcome, SampleRun, build_command, built, run_inside
from helpers.json_page import promised

pytestmark = pytest.mark.server

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def reviewed(sample_run: SampleRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, with a sample of its pairs labelled by two people who mostly agree with the judge."""
    folder = Path(shutil.copytree(sample_run.folder, tmp_path_factory.mktemp("reviewed") / "run"))
    review(Run(str(folder)))
    return folder


@pytest.fixture
def copied(reviewed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reviewed, tmp_path / "run"))


def review(run: Run) -> None:
    draw_sample(run, read_run(run).settings)
    chance, journal = np.random.default_rng(0), AnswerJournal(run.store)
    joined = "FROM review_sample s JOIN verdicts v USING (tenant, query_id, chunk_id)"
    said = run.tables("review_sample", "verdicts").sql(f"SELECT s.*, v.relevant {joined} ORDER BY position")
    for row in said.to_pylist():
        for name in ("ann", "bob") if row["shared"] else ("ann",):
            relevance = int(row["relevant"] if chance.random() < 0.93 else not row["relevant"])
            key = (row["tenant"], row["query_id"], row["chunk_id"])
            journal.append(ReviewAnswer(*key, name, relevance, WHEN, rationale="[red]so[/] \x1b[31mit is"))


def validate(out: Path, environment: Environment, *options: str) -> Outcome:
    return run_inside([DARKLODE, "validate", str(out), *options], environment)


def last_flow_run(environment: Environment) -> dict[str, Any]:
    url, head = environment["PREFECT_API_URL"] + "/flow_runs/filter", {"Content-Type": "application/json"}
    body = {"flows": {"name": {"any_": ["validate-benchmark"]}}, "sort": "START_TIME_DESC", "limit": 1}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head), timeout=30) as answer:
        return dict(json.load(answer)[0])


def rows(out: Path, sql: str) -> list[dict[str, Any]]:
    tables = Run(str(out)).tables("validation", "release", "review_sample", "qrels", "verdicts", "human_labels")
    found: list[dict[str, Any]] = tables.sql(sql).to_pylist()
    return found


@pytest.mark.slow
def test_a_run_that_nobody_reviewed_says_how_to(sample_run: SampleRun, served: Environment, tmp_path: Path) -> None:
    out = Path(shutil.copytree(sample_run.folder, tmp_path / "run"))
    shown = validate(out, served)
    assert shown.code == 1
    assert re.fullmatch(
        rf"error: no pair of the review sample of {out} has a human label; label some with `darklode review {out}`, "
        r"then run this again\n",
        shown.err,
    )
    assert not (out / "tables" / "validation").exists(), "nothing is computed of no answer"
    shown = validate(out, served, "--min-kappa", "0.1")
    assert shown.code == 3
    assert "kappa is unknown (too few labels), but validation.min_kappa requires at least 0.1" in shown.err
    assert "Precision is unknown" in shown.out
    assert "Recall is unknown" in shown.out


def test_what_reviewers_found_is_shown_and_the_run_is_let_out(
    copied: Path, served: Environment, tmp_path: Path
) -> None:
    labels = tmp_path / "labels.csv"
    gate = ("--min-kappa", "0.2", "--max-null-rate", "0.01", "--min-recall", "0.1")
    shown = validate(copied, served, *gate, "--labels", str(labels))
    assert (shown.code, shown.err) == (0, ""), shown
    for title in (
        "Labelled pairs: judge (rows) against people (columns)",
        "Estimates for all pairs of the run (95 % intervals)",
        "By tenant",
        "By retriever, for the pairs it found",
        "Agreement between reviewers: pairwise Cohen's kappa, overall Krippendorff's alpha",
        "Current and best-fitting threshold",
        "Disagreements between judge and people: 10 of ",
    ):
        assert f"\n{title}" in shown.out, title
    assert re.search(r"^relevant +\d+ +\d+$", shown.out, re.M)
    assert re.search(r"^ann +bob +\d+ +\d+ +0\.\d{3}", shown.out, re.M)
    assert re.search(r"^  query +\S", shown.out, re.M)
    assert "\x1b" not in shown.out
    assert "[red]so[/] �[31mit is" in shown.out
    (row,) = rows(copied, "FROM validation WHERE tenant IS NULL AND retriever IS NULL")
    assert f"{row['kappa']:.3f} ({row['kappa_low']:.3f}–{row['kappa_high']:.3f})" in shown.out
    assert shown.out.rstrip().endswith("limits in parentheses.")
    assert f"{copied} may be published: kappa is {row['kappa']:.3f} (0.2)" in shown.out
    done = last_flow_run(served)
    assert (done["state"]["name"], "may be published" in done["state"]["message"]) == ("Completed", True)
    card = (copied / "README.md").read_text()
    assert "## Judge against reviewers, by tenant" in card
    assert "the dataset may be published" in card
    assert len(labels.read_text().splitlines()) == 1 + row["labelled"]

    answer = json.loads(validate(copied, served, "--json").out)
    assert promised("validate") - {"notes"} <= answer.keys() <= promised("validate")
    assert (answer["publishable"], len(answer["disagreements"])) == (True, 10)

    again = validate(copied, served, "--labels", str(labels))
    assert again.code == 1
    assert "cannot be written: File exists; give a new file to --labels" in again.err
    assert again.out.count(" up to date\n") == 7  # the six stages and the funnel: the gate is that of before


@pytest.mark.slow
def test_a_run_that_falls_short_is_held_back(copied: Path, served: Environment) -> None:
    shown = validate(copied, served, "--min-kappa", "0.99", "--max-null-rate", "0", "--set", "validation.min_recall=1")
    assert shown.code == 3
    assert "Estimates for all pairs of the run" in shown.out
    message = (
        r"kappa is 0\.\d{3}, but validation\.min_kappa requires at least 0\.99; recall is 0\.\d{3}, but .* at least 1\."
    )
    assert re.fullmatch(rf"error: {copied} cannot be published: {message} Inspect the disagreements[^\n]*\n", shown.err)
    failed = last_flow_run(served)
    assert failed["state"]["name"] == "Held"
    assert re.search(message, failed["state"]["message"])
    assert {row["figure"]: row["passed"] for row in rows(copied, "FROM release")} == {
        "kappa": False,
        "null_rate": True,
        "recall": False,
        "probe_rate": None,
    }
    assert "**Held back:**" in (copied / "README.md").read_text()


@pytest.mark.slow
def test_labels_go_back_into_a_build_and_say_whose_they_are(copied: Path, served: Environment, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    assert validate(copied, served, "--labels", str(labels)).code == 0
    before = rows(copied, "SELECT * EXCLUDE (threshold) FROM validation ORDER BY ALL")
    built(build_command(copied, "--human", str(labels), "--set", "labels.human_overrides=true"), served)
    human = rows(copied, "SELECT * FROM qrels WHERE source = 'human'")
    assert len(human) == rows(copied, "SELECT count(*) AS n FROM human_labels")[0]["n"] > 300
    assert not rows(
        copied,
        "SELECT * FROM qrels q JOIN human_labels h USING (tenant, query_id, chunk_id) WHERE q.relevance <> h.relevance",
    )
    overruled = "FROM qrels JOIN verdicts USING (tenant, query_id, chunk_id) WHERE (relevance > 0) <> relevant"
    assert {row["source"] for row in rows(copied, overruled)} == {"human"}
    card = (copied / "README.md").read_text()
    assert f"| human | {len(human)} |" in card.split("## Label sources\n")[1]
    # The judge is measured by its own verdicts: people do not raise its figures by overruling it.
    assert validate(copied, served).code == 0
    assert rows(copied, "SELECT * EXCLUDE (threshold) FROM validation ORDER BY ALL") == before
