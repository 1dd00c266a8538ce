"""The threshold, applied after the judge has spoken."""

from __future__ import annotations

import asyncio

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import cohens_kappa, confusion, fit_threshold
from darklode.pipeline.judge.port import PAIRS, REPLIES
from darklode.pipeline.judge.threshold import Thresholded, fit_smooth_threshold
from helpers.scripted_judge import UNREADABLE, Said, ScriptedJudge


def pairs(n: int) -> pa.Table:
    row = dict.fromkeys(PAIRS.names, "x")
    return pa.Table.from_pylist([row | {"chunk_id": f"c{place}"} for place in range(n)], PAIRS)


def relevant(said: list[Said], threshold: float) -> list[bool | None]:
    scripted = ScriptedJudge(lambda pair: said[int(pair["chunk_id"][1:])])
    replies = asyncio.run(Thresholded(scripted, threshold).judge(pairs(len(said))))
    assert replies.schema.equals(REPLIES)
    labels: list[bool | None] = replies["relevant"].to_pylist()
    return labels


def test_labels_follow_probabilities() -> None:
    said: list[Said] = [{"relevant": share > 0.5, "probability": share} for share in (0.2, 0.3, 0.6, 0.7)]
    assert relevant(said, 0.3) == [False, True, True, True]
    assert relevant(said, 0.7) == [False, False, False, True]


def test_a_label_without_a_probability_stands_and_none_stays_none() -> None:
    assert relevant([{"relevant": True}, {"relevant": False}, UNREADABLE], 0.9) == [True, False, None]
    assert relevant([{**UNREADABLE, "probability": 0.95}], 0.9) == [None]


def test_the_judge_id_names_the_threshold() -> None:
    assert Thresholded(ScriptedJudge(judge_id="j"), 0.25).judge_id == "j:0.25"


def test_facts_and_live_are_those_of_the_inner_judge() -> None:
    judge = ScriptedJudge()
    judge.facts = {"calls": 3}
    assert (Thresholded(judge, 0.5).facts, Thresholded(judge, 0.5).live) == ({"calls": 3}, None)


def drawn(n: int, seed: int, slope: float = 2.0) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Probabilities, and labels whose log-odds are `slope` times the probabilities' and lower by 1."""
    random = np.random.default_rng(seed)
    log_odds = random.normal(-1, 1, n)
    positive = random.random(n) < 1 / (1 + np.exp(1 - slope * log_odds))
    return (1 / (1 + np.exp(-log_odds))).astype(np.float32), positive


def kappa(predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> float:
    return float(cohens_kappa(confusion(predicted, positive)))


def test_with_many_labels_the_smooth_threshold_is_as_good_as_the_best_one() -> None:
    probability, positive = drawn(20_000, 1)
    smooth, best = fit_smooth_threshold(probability, positive), fit_threshold(probability, positive)
    assert smooth is not None
    assert best is not None
    assert best[1] - 0.005 <= smooth[1] <= best[1]
    assert smooth[1] == pytest.approx(kappa(probability >= np.float32(smooth[0]), positive))


def test_with_few_labels_it_agrees_better_on_new_pairs() -> None:
    others = drawn(20_000, 2)
    gains = []
    for seed in range(3, 43):
        labels = drawn(100, seed)
        smooth, best = fit_smooth_threshold(*labels), fit_threshold(*labels)
        assert smooth is not None
        assert best is not None
        gains.append(np.diff([kappa(others[0] >= np.float32(cut), others[1]) for cut, _ in (best, smooth)])[0])
    assert np.mean(gains) > 0.01


def test_nothing_is_fitted_to_one_class_to_one_value_or_to_chance() -> None:
    values = np.linspace(0.1, 0.9, 50, dtype=np.float32)
    assert fit_smooth_threshold(values, np.ones(50, bool)) is None
    assert fit_smooth_threshold(np.full(50, 0.3, np.float32), values > 0.5) is None
    assert fit_smooth_threshold(values, values < 0.5) is None, "more probable pairs are relevant less often"


def test_where_the_curve_misleads_the_labels_decide() -> None:
    """The likeliest pairs are relevant, the others the less the likelier they are: the fitted curve falls."""
    values = np.linspace(0.1, 0.9, 50, dtype=np.float32)
    positive = (values > 0.85) | (values < 0.3)
    assert fit_smooth_threshold(values, positive) == fit_threshold(values, positive)
    assert fit_threshold(values, positive) is not None
