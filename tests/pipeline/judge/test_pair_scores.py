"""Judges that score pairs in batches, with a scripted model."""

from __future__ import annotations

import asyncio

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from darklode.pipeline.judge import pair_scores
from darklode.pipeline.judge.pair_scores import PairScoringJudge
from darklode.pipeline.judge.port import REPLIES
from helpers.scripted_stream import pairs


class ScriptedScores(PairScoringJudge):
    """Scores by the chunk's length: the longest that is given is NaN."""

    judge_id: str = "scripted"

    def __init__(self, threshold: float) -> None:
        super().__init__(threshold)
        self.batches: list[list[tuple[str, str]]] = []

    @property
    def _pairs_per_pass(self) -> int:
        return 2

    def _score(self, texts: list[tuple[str, str]]) -> NDArray[np.float64]:
        self.batches.append(texts)
        return np.array([np.nan if "99999" in chunk else len(chunk) / 10 + 0.000049 for _, chunk in texts])


def replies(judge: PairScoringJudge, rows: pa.Table) -> list[tuple[list[int], pa.Table]]:
    async def collect() -> list[tuple[list[int], pa.Table]]:
        return [(batch.rows.tolist(), batch.replies) async for batch in judge.stream(rows)]

    return asyncio.run(collect())


def test_pairs_are_scored_longest_first_and_labelled_by_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_scores, "BATCHES_AT_ONCE", 1)
    judge = ScriptedScores(0.8)
    batches = replies(judge, pairs((1, 1), (1, 99999), (1, 22)))
    assert [rows for rows, _ in batches] == [[1, 2], [0]]
    assert judge.batches == [[("query 1", "chunk 99999"), ("query 1", "chunk 22")], [("query 1", "chunk 1")]]
    table = pa.concat_tables([part for _, part in batches])
    assert table.schema.equals(REPLIES)
    assert table["relevant"].to_pylist() == [None, True, False]
    assert table["probability"].to_pylist() == pytest.approx([None, 0.8, 0.7], nan_ok=True), "rounded to four decimals"
    assert table["error"].to_pylist() == ["the model's score is not a number", None, None]


def test_no_pairs_need_no_model() -> None:
    judge = ScriptedScores(0.5)
    assert replies(judge, pairs((1, 1)).slice(0, 0)) == []
    assert judge.batches == []
