"""darklode adapt compare: one table on the screen, and a page, under Prefect."""

from pathlib import Path

import pytest

from helpers.adapted import build_to_adapt, model_in
from helpers.commands import DARKLODE, Environment, run_inside

pytestmark = pytest.mark.server


@pytest.mark.slow
def test_the_table_is_shown_and_the_page_is_named(tmp_path: Path, served: Environment) -> None:
    build_to_adapt(tmp_path / "run")
    command = [DARKLODE, "adapt", "compare", str(tmp_path / "run"), "--out", str(tmp_path / "out")]
    command += ["--encoder", model_in(tmp_path).model, "--method", "closed_form", "--seeds", "1"]
    done = run_inside(command, served)
    assert (done.code, done.err) == (0, "")
    assert "Test queries: own positive" in done.out
    assert "BM25 + base, RRF" in done.out
    assert "comparison.md" in " ".join(done.out.split())
    again = run_inside(command, served)
    assert (again.code, "Test queries: own positive" in again.out) == (0, True)
