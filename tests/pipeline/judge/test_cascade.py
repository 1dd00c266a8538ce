"""A cascade: who answers which pair, and what the verdicts say about it."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.judge.cascade import Cascade, CascadeBand, distilled_record
from darklode.pipeline.judge.port import PAIRS
from darklode.pipeline.judge.threshold import Thresholded
from helpers.scripted_judge import ScriptedJudge

BAND = CascadeBand(0.2, 0.8)
PROBABILITIES = {"a": 0.1, "b": 0.2, "c": 0.5, "d": 0.8, "e": None}


def band(low: float | None, high: float | None, *folds: tuple[int, int, int, int, int]) -> dict[str, Any]:
    """A row of `cascade_bands`; each fold has its confusion with the teacher and its pairs for the teacher."""
    return {"low": low, "high": high, "fold_counts": [list(fold) for fold in folds]}


BANDS = [
    band(0.4, 0.4, *[(75, 25, 25, 75, 0)] * 2),  # kappa .5
    band(0.2, 0.6, *[(96, 4, 4, 96, 60)] * 2),  # .92
    band(0.1, 0.7, *[(95, 5, 5, 95, 80)] * 2),  # .90
    band(None, None, *[(100, 0, 0, 100, 200)] * 2),
]
UNEQUAL = [
    band(0.4, 0.4, (50, 0, 0, 50, 0), (40, 10, 10, 40, 0)),  # 1 and .6, together .8
    band(0.2, 0.6, (50, 0, 0, 50, 50), (48, 2, 2, 48, 50)),  # 1 and .92, together .96
    band(None, None, *[(50, 0, 0, 50, 100)] * 2),
]


def pairs(chunk_ids: list[str]) -> pa.Table:
    rows = [dict.fromkeys(PAIRS.names, "") | {"query_id": "q", "chunk_id": chunk} for chunk in chunk_ids]
    return pa.Table.from_pylist(rows, schema=PAIRS)


def small_says(pair: Mapping[str, Any]) -> dict[str, Any]:
    probability = PROBABILITIES[pair["chunk_id"]]
    if probability is None:
        return {"error": "the model's score is not a number"}
    return {"relevant": probability >= 0.4, "probability": probability}


def judges() -> tuple[ScriptedJudge, ScriptedJudge]:
    return ScriptedJudge(small_says, "small"), ScriptedJudge(lambda _: {"relevant": True, "grade": 3}, "large")


def test_the_large_judge_is_asked_only_what_the_small_one_is_not_sure_of() -> None:
    small, large = judges()
    cascade = Cascade(small, large, BAND, lowest_grade=2)
    replies, answered_by = asyncio.run(cascade.route(pairs(["d", "c", "a", "e", "b"])))
    assert [chunk for *_, chunk in large.asked] == ["c", "e"]
    assert answered_by.tolist() == [0, 1, 0, 1, 0]
    assert replies["relevant"].to_pylist() == [True, True, False, True, False]
    assert replies["grade"].to_pylist() == [2, 3, None, 3, None]
    assert replies["error"].null_count == 5
    assert cascade.facts == {"answered_small": 3, "answered_large": 2}
    assert cascade.answering_ids == ("small", "large")
    assert cascade.judge_id == "cascade-1:0.2-0.8:[small | large]"


def test_the_band_decides_not_the_threshold_of_the_small_judge() -> None:
    cascade = Cascade(*judges(), CascadeBand(0.6, 0.6))
    replies = asyncio.run(cascade.judge(pairs(["c", "d"])))
    assert replies["relevant"].to_pylist() == [False, True]  # at 0.4 both would be relevant
    assert cascade.facts["answered_large"] == 0


def test_a_threshold_is_part_of_the_ids_of_the_judges_that_answer() -> None:
    cascade = Thresholded(Cascade(*judges(), BAND), 0.85)
    replies, answered_by = asyncio.run(cascade.route(pairs(["d", "c", "a"])))
    assert answered_by.tolist() == [0, 1, 0]
    assert replies["relevant"].to_pylist() == [False, True, False], "the large judge gives no probability"
    assert cascade.answering_ids == ("small:0.85", "large:0.85")
    assert cascade.judge_id == "cascade-1:0.2-0.8:[small | large]:0.85"


def test_no_band_leaves_all_pairs_to_the_large_judge() -> None:
    assert not CascadeBand(None, None).is_sure(np.array([0.0, 1.0, np.nan])).any()


@pytest.mark.parametrize(
    ("kappa", "low", "share"),
    [(0.3, 0.4, 0.0), (0.89, 0.2, 0.3), (0.915, 0.2, 0.3), (0.95, None, 1.0), (1.0, None, 1.0)],
)
def test_the_band_with_the_fewest_calls_that_agrees_enough(
    tmp_path: Path, kappa: float, low: float | None, share: float
) -> None:
    (tmp_path / "reranker.json").write_text(json.dumps({"bands": BANDS}))
    band = CascadeBand.from_folder(str(tmp_path), kappa)
    assert (band.low, band.large_share) == (low, share)


def test_bands_without_a_kappa_are_not_chosen(tmp_path: Path) -> None:
    bands = [band(0.4, 0.4, (9, 0, 0, 0, 0)), band(None, None, (9, 0, 0, 0, 9))]
    (tmp_path / "reranker.json").write_text(json.dumps({"bands": bands}))
    chosen = CascadeBand.from_folder(str(tmp_path), 0.0)
    assert (chosen.large_share, chosen.kappa) == (1.0, None)


@pytest.mark.parametrize(("min_kappa", "low"), [(0.79, 0.4), (0.9, 0.2)])
def test_share_and_kappa_are_measured_on_queries_that_did_not_choose_the_band(min_kappa: float, low: float) -> None:
    chosen = CascadeBand.choose(UNEQUAL, min_kappa)
    assert chosen.low == low
    # The second fold chooses the second band for the first fold; the first fold chooses the first band.
    assert (chosen.large_share, chosen.kappa) == (0.25, pytest.approx(0.8))


@pytest.mark.parametrize("content", [None, "{", "[]", '{"tenant": "t"}', '{"tenant": "t", "bands": [{"low": 0.1}]}'])
def test_a_folder_without_a_distilled_judge(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "reranker.json").write_text(content)
    assert distilled_record(str(tmp_path)).get("tenant") == ("t" if content and "tenant" in content else None)
    with pytest.raises(MissingPart, match="make one with `darklode judge distil`"):
        CascadeBand.from_folder(str(tmp_path), 0.9)
