"""darklode adapt: its verdict on the screen and in the exit code, under Prefect."""

from pathlib import Path

import pytest

from helpers.adapted import build_to_adapt, model_in
from helpers.commands import DARKLODE, Environment, run_inside

pytestmark = pytest.mark.server


@pytest.mark.slow
def test_the_base_is_handed_over_with_exit_code_3_and_the_parts_shown(tmp_path: Path, served: Environment) -> None:
    build_to_adapt(tmp_path / "run")
    model = model_in(tmp_path).model
    command = [DARKLODE, "adapt", str(tmp_path / "run"), "--encoder", model, "--out", str(tmp_path / "out")]
    quick = ["--method", "linear", "--set", "adapt.max_steps=50", "--set", "adapt.learning_rates=[0.0003]"]
    tried = run_inside([*command, *quick, "--dry-run"], served)
    assert (tried.code, tried.err) == (0, "")
    assert "15 test queries in 15 clusters decide: a lift of about 0.303 or more" in " ".join(tried.out.split())
    assert "adaptation_trials" not in tried.out
    done = run_inside([*command, *quick], served)
    assert done.code == 3
    assert "is the base itself: " in done.err
    assert "own positive" in done.out
    again = run_inside([*command, *quick], served)
    assert (again.code, "not run yet" in again.out) == (3, False)
