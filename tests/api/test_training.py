"""`adapt` from Python: its verdict is a result, not an exit code."""

from pathlib import Path

import pytest

import darklode
from helpers.adapted import build_to_adapt, model_in

QUICK = {"adapt.max_steps": 50, "adapt.learning_rates": [0.0003]}


@pytest.mark.slow
def test_the_verdict_and_the_gain_are_in_the_result(tmp_path: Path) -> None:
    build_to_adapt(tmp_path / "run")
    run, out = darklode.open(tmp_path / "run"), tmp_path / "out"
    model = model_in(tmp_path).model
    headroom = darklode.adapt(run, encoder=model, out=out, method="linear", settings=QUICK, dry_run=True)
    assert headroom.passed is None
    assert "15 test queries in 15 clusters decide" in str(headroom.verdict)
    assert list(headroom.figures) == ["headroom"]
    result = darklode.adapt([run], encoder=model, out=out, method="linear", settings=QUICK)
    assert result.passed is False
    assert "is the base itself: " in str(result.verdict)
    gain = result.figures["gain"]
    assert "own positive" in gain["part"]
    assert len({(row["part"], row["measure"]) for row in gain}) == len(gain)  # one comparison: with the base
    assert result.url == str(out)
    assert "adaptation_trials" in result.tables
    assert "<strong>" in result._repr_html_()
    with pytest.raises(darklode.DarklodeError, match="support one tenant"):
        darklode.adapt(run, encoder=model, out=out, tenants="all", dry_run=True)
