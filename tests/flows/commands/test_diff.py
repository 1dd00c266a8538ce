import re
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.schemas.tables import TABLES
from helpers.commands import Call
from helpers.finished_run import finished_run
from helpers.runs import put
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
