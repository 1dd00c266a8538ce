"""The threshold, applied after the judge has spoken."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from darklode.pipeline.judge.port import PAIRS, REPLIES
from darklode.pipeline.judge.threshold import Thresholded
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
