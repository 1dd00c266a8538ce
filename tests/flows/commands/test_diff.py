import json
import re
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.schemas.tables import TABLES
from helpers.commands import Call
from helpers.finished_run import finished_run
from helpers.runs import put, written
from helpers.triplet_rows import triplet_rows


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    return finished_run(str(tmp_path / "old")), finished_run(str(tmp_path / "new"), ("acme",))


def test_it_says_what_came_and_went(call: Call, runs: tuple[Run, Run]) -> None:
    old, new = runs
    old.store.write("settings.yaml", b"judge: {threshold: 0.5, prompt: binary}\nseed: 13\n")
    new.store.write("settings.yaml", b"judge: {threshold: 0.4, prompt: binary}\nseed: 13\nadded: '[bold]'\n")
    shown = call("diff", old.store.url, new.store.url)
    assert (shown.code, shown.err) == (0, "")
    settings = shown.out.split("Rows")[0]
    assert "judge.threshold" in settings
    assert "0.4" in settings
    assert "[bold]" in settings
    assert "seed" not in settings
    assert "query removed" in shown.out
    assert "No label flipped." in shown.out
    assert "Examples: queries" in shown.out


def test_it_says_that_nothing_changed(call: Call, runs: tuple[Run, Run]) -> None:
    shown = call("diff", runs[0].store.url, runs[0].store.url)
    assert shown.code == 0
    assert "The settings are the same." in shown.out
    assert "Both runs contain the same rows." in shown.out


def test_a_folder_without_a_run_is_named(call: Call, runs: tuple[Run, Run], tmp_path: Path) -> None:
    shown = call("diff", runs[0].store.url, tmp_path / "nothing")
    assert shown.code == 1
    assert f"{tmp_path}/nothing holds no run" in shown.err


def test_mined_runs_have_no_labels_to_speak_of(call: Call, tmp_path: Path) -> None:
    old, new = Run(str(tmp_path / "old")), Run(str(tmp_path / "new"))
    put(old, "triplets", triplet_rows([("q", "a", ["n"]), ("p", "b", ["m"])], source="click_one_hop", scored=False))
    put(new, "triplets", triplet_rows([("q", "a", ["o"])], source="click_one_hop", scored=False))
    shown = call("diff", old.store.url, new.store.url)
    assert shown.code == 0
    assert re.search(r"^triplets +2 +1 +1 +0 +1 *$", shown.out, re.M)
    assert "label" not in shown.out
    assert "what is q? → text of a ≠ text of o" in shown.out


def test_runs_that_have_hardly_begun_can_be_compared(call: Call, tmp_path: Path) -> None:
    begun = Run(str(tmp_path / "run"))
    put(begun, "raw_queries", TABLES["raw_queries"].empty())
    shown = call("diff", begun.store.url, begun.store.url)
    assert (shown.code, shown.err) == (0, "")
    assert "Both runs contain the same rows." in shown.out


def test_measures_of_evaluated_runs_are_side_by_side(call: Call, runs: tuple[Run, Run]) -> None:
    for run, value in zip(runs, (0.25, 0.5), strict=True):
        key = {"tenant": "acme", "query_id": "q"}
        system = {"system": "bm25", "measure": "nDCG@10"}
        written(run, "test_queries", [key | {"text": "a query", "group": "1"}])
        written(run, "test_labels", [key | {"text_id": "c", "relevance": 1 if value < 0.5 else 2}])
        written(run, "evaluation_queries", [key | system | {"value": value}])
        written(run, "evaluation", [system | {"part": "counted"}])
    shown = call("diff", *(run.store.url for run in runs))
    assert (shown.code, shown.err) == (0, "")
    assert "Measures on the 1 test queries of both runs" in shown.out
    assert re.search(r"^bm25 +nDCG@10 +0\.250* +0\.50* +0\.250* ", shown.out, re.M)
    assert f"1 of 1 shared test queries have other labels in {runs[1].store.url}" in shown.out
    found = json.loads(call("diff", *(run.store.url for run in runs), "--json").out)
    assert (found["evaluation"][0]["difference"], found["relabelled_queries"]) == (0.25, 1)
