"""`darklode nights`: rows, JSON and a page; its commands decide about held days as printed."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from darklode.flows.config import load_settings
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import BenchmarkInputs
from helpers.commands import DARKLODE, Call, Environment, SampleRun, built, mine_command, one_line, run_inside
from helpers.runs import SAMPLE

pytestmark = pytest.mark.server


def test_the_days_of_a_run(call: Call, mined_run: SampleRun, tmp_path: Path) -> None:
    shown = call("nights", mined_run.folder, "--days", "3")
    assert (shown.code, shown.err) == (0, "")
    lines = [line.split()[:4] for line in shown.out.splitlines() if line.startswith("2026-")]
    assert [line[:3] for line in lines] == [
        [f"2026-03-{day:02}", tenant, "admitted"] for day in (10, 9, 8) for tenant in ("default", "tern")
    ]
    answer = json.loads(call("nights", mined_run.folder, "--json").out)
    assert sorted(answer) == ["held", "measures", "nights", "run"]
    assert (len(answer["nights"]), answer["held"]) == (20, [])
    assert [row["rows"] for row in answer["nights"][:6]] == [int(line[3].replace(",", "")) for line in lines]
    assert {row["tenant"] for row in answer["measures"]} == {"default", "tern"}
    page = tmp_path / "nights.html"
    written = call("nights", mined_run.folder, "--tenant", "tern", "--html", page)
    assert written.out.endswith(f"{page}\n")
    assert "default" not in page.read_text().partition("</style>")[2]


def test_what_cannot_be_shown_is_one_line(call: Call, mined_run: SampleRun, tmp_path: Path) -> None:
    one_line(call("nights", tmp_path), "holds no run")
    one_line(call("nights", mined_run.folder, "--tenant", "nobody"), "the last 60 days of .* have no tenant nobody", 2)
    one_line(call("nights", mined_run.folder, "--html", tmp_path / "no" / "page.html"), "No such file")
    benchmark = Path(shutil.copytree(mined_run.folder, tmp_path / "benchmark"))
    write_run(Run(str(benchmark)), BenchmarkInputs(docs=str(SAMPLE), queries=str(SAMPLE)), load_settings())
    one_line(call("nights", benchmark), r"holds a benchmark \(`darklode build`\), not mined triplets")


@pytest.mark.slow
def test_the_printed_commands_decide(served: Environment, tmp_path: Path) -> None:
    log, run = tmp_path / "my log", tmp_path / "run"
    shutil.copytree(SAMPLE / "impressions", log)
    file = log / "date=2026-03-10" / "impressions.csv"
    file.write_text(file.read_text().replace(",false", ",true"))
    assert run_inside(mine_command(run, "--set", "click.min_clicks=2", logs=log), served).code == 4
    shown = built([DARKLODE, "nights", str(run), "--json"], served)
    held = json.loads(shown)["held"]
    assert [(day["tenant"], day["date"]) for day in held] == [("default", "2026-03-10"), ("tern", "2026-03-10")]
    printed = built([DARKLODE, "nights", str(run)], served)
    for day, option in zip(held, ("accept", "discard"), strict=True):
        assert f"\n  {day[option]}\n" in printed
        assert day["reasons"][0] in printed
        run_inside([DARKLODE, *shlex.split(day[option])[1:]], served)
    decided = json.loads(built([DARKLODE, "nights", str(run), "--json"], served))
    assert decided["held"] == []
    states = {row["tenant"]: row["state"] for row in decided["nights"] if row["date"] == "2026-03-10"}
    assert states == {"default": "accepted", "tern": "discarded"}
    assert "min_clicks: 2" in (run / "settings.yaml").read_text(), "the settings stay those of the run"
