"""`evaluate`, `audit` and `validate` from Python: figures and verdicts of the commands."""

import json
from pathlib import Path

import pytest

import darklode
from helpers.commands import Call
from helpers.json_page import promised

pytestmark = pytest.mark.server


def test_figures_are_those_of_json(copied: Path, call: Call) -> None:
    for result, command in (
        (darklode.audit(copied), "audit"),
        (darklode.evaluate(copied, system="bm25", settings={"evaluate.n_resamples": 50}), "evaluate"),
    ):
        assert result.figures.keys() <= promised(command)
        assert (result.verdict, result.passed) == (None, None)
        assert "<h4>" in result._repr_html_()
    printed = json.loads(call("audit", copied, "--json").out)
    assert [row["retriever"] for row in printed["audit"]] == darklode.audit(copied).figures["audit"]["retriever"]


def test_a_limit_that_is_missed_is_a_verdict(copied: Path, tmp_path: Path) -> None:
    with pytest.raises(darklode.DarklodeError, match="no pair of the review sample"):
        darklode.validate(copied)
    result = darklode.validate(copied, min_kappa=0.6)
    assert result.passed is False
    assert "kappa is unknown" in str(result.verdict)
    assert {"confusion", "estimates"} <= result.figures.keys() <= promised("validate")
    no_kappa = {"validation.min_kappa": None}  # the run keeps the limits that it was validated with
    assert darklode.validate(copied, max_null_rate=1.0, settings=no_kappa).passed is True
