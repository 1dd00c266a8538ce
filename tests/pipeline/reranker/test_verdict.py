"""The release decision: against the best order without training, by validation and by the test."""

from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import NoLift
from darklode.pipeline.reranker.evaluation import BASE_RERANKER, CANDIDATES, RERANKED
from darklode.pipeline.reranker.verdict import (
    RERANKER_VERDICT_STAGE,
    decide_reranker,
    read_reranker_verdict,
    require_gain,
)
from darklode.pipeline.train.data.system_names import BASE, BM25
from darklode.schemas.reranker_tables import RERANKER_TRIALS
from helpers.reranked import RerankedRun
from helpers.runs import execute, written


def test_a_real_gain_is_released_and_the_sentence_names_the_bounds(reranked: RerankedRun) -> None:
    assert reranked.verdict == require_gain(reranked.out)
    assert "against candidates on 39 test queries" in reranked.verdict
    assert "candidates in the best order 1.000" in reranked.verdict
    verdict = read_reranker_verdict(reranked.out.tables())
    assert verdict["shipped"] == "reranker"
    assert 0 < verdict["low"] < verdict["difference"] < verdict["high"]


GAIN = {"difference": 0.1, "low": 0.06, "high": 0.14, "bounded_low": 0.04, "p": 0.001, "detectable": 0.03}
LOSS = {"difference": -0.1, "low": -0.14, "high": -0.06, "bounded_low": -0.2, "p": 0.001, "detectable": 0.03}


def decided(folder: Path, trial: dict[str, Any], *differences: tuple[str, dict[str, float]]) -> dict[str, Any]:
    """The verdict on a trial, and on differences to other systems."""
    run = Run(str(folder))
    row = {"trial": 0, "learning_rate": 1e-5, "step": 9, "weight": 0.5, "candidates": 0.5, "queries": 120}
    written(run, RERANKER_TRIALS.name, [row | trial])
    written(run, "adaptation_queries", [{"tenant": "acme", "query_id": "q"}])
    tests = [
        {"tenant": "acme", "query_id": f"q{number}", "group": str(number), "shares_positive": False}
        for number in range(40)
    ]
    written(run, "test_queries", tests)
    pair = {"system": RERANKED, "measure": "nDCG@10", "part": "counted", "queries": 40, "clusters": 40}
    pairs = [pair | {"other": other} | values for other, values in differences]
    pairs = [{"p_holm": 0.01, "wins": 1, "losses": 1} | each for each in pairs]
    written(run, "evaluation_pairs", pairs)
    execute(run, RERANKER_VERDICT_STAGE, decide_reranker)
    return read_reranker_verdict(run.tables("reranker_verdict"))


def test_no_gain_on_validation_is_refused_whatever_the_test_says(tmp_path: Path) -> None:
    verdict = decided(tmp_path, {"validation": 0.5}, (CANDIDATES, GAIN))
    assert verdict["shipped"] == "none"
    assert "no trained model was better than candidates on 120 validation queries" in verdict["reason"]


def test_a_loss_on_the_test_is_refused(tmp_path: Path) -> None:
    verdict = decided(tmp_path, {"validation": 0.6}, (CANDIDATES, LOSS))
    assert (verdict["shipped"], verdict["other"]) == ("none", CANDIDATES)
    assert "it is worse: nDCG@10 against candidates -0.100" in verdict["reason"]


def test_a_base_that_reranks_better_than_the_candidates_must_be_beaten(tmp_path: Path) -> None:
    trial = {"validation": 0.7, "base": 0.6, "base_weight": 0.5}
    verdict = decided(tmp_path / "a", trial, (CANDIDATES, GAIN), (BASE_RERANKER, LOSS))
    assert (verdict["shipped"], verdict["other"]) == ("none", BASE_RERANKER)
    weak_base = trial | {"base": 0.4}
    assert decided(tmp_path / "b", weak_base, (CANDIDATES, GAIN), (BASE_RERANKER, LOSS))["shipped"] == "reranker"


@pytest.mark.parametrize("system", [BM25, BASE])
def test_a_system_without_reranker_that_is_better_is_used_instead(tmp_path: Path, system: str) -> None:
    verdict = decided(tmp_path, {"validation": 0.6}, (CANDIDATES, GAIN), (system, LOSS))
    assert verdict["shipped"] == "none"
    assert verdict["reason"].startswith(f"{system} alone needs no reranker: nDCG@10 of the reranked candidates -0.100")
    assert verdict["difference"] == 0.1, "the gain over the candidates is recorded"


def test_a_refusal_is_an_error_with_the_reason(reranked: RerankedRun, tmp_path: Path) -> None:
    run = Run(str(tmp_path))
    for name in ("evaluation", "evaluation_pairs"):
        written(run, name, reranked.out.tables().read(name).to_pylist())
    row = read_reranker_verdict(reranked.out.tables()) | {"shipped": "none", "reason": "no gain"}
    written(run, "reranker_verdict", [row])
    with pytest.raises(NoLift, match=r"releases no reranker: no gain\. nDCG@10: reranked"):
        require_gain(run)
