"""Which texts become negatives, of labels and scores that are written by hand."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.labels import Labels
from darklode.pipeline.train.data.nearest import nearest
from darklode.pipeline.train.data.negatives import Negatives, mine_negatives
from darklode.schemas.adaptation import AdaptSettings

N = 8
SCORES = np.array([0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3])
"""Of the one query with the texts at positions 0 to 7."""


@dataclass
class Shelf:
    """Texts in a plane, so that their products with (1, 0) are the scores."""

    vectors: Floats

    def nearest(self, queries: Floats, _index: object, depth: int) -> tuple[Ints, Floats]:
        return nearest(queries, self.take, range(N), depth)

    def take(self, positions: Ints) -> Floats:
        return self.vectors[positions]

    def __len__(self) -> int:
        return N


def task(*, positive: int, known: list[int], refused: list[int], siblings: list[int] | None = None) -> Task:
    vectors = np.column_stack([SCORES, np.sqrt(1 - SCORES**2)]).astype(np.float32)
    asked = QuerySet(pa.array(["q"]), np.array([[1, 0]], np.float32), np.zeros(1, np.int32), pa.table({}))

    def labels(positions: list[int]) -> Labels:
        return Labels.from_pairs(np.zeros(len(positions), np.int64), np.array(positions, np.int64), N)

    return Task(
        Shelf(vectors),  # type: ignore[arg-type]
        asked,
        asked,
        np.array([0]),
        np.array([positive]),
        labels(known),
        labels(refused),
        None if siblings is None else labels(siblings),
    )


def mined(given: Task, negatives: int = 4) -> Negatives:
    return mine_negatives(given, given.train.vectors, AdaptSettings(num_negatives=negatives, negatives_per_step=1))


def test_judged_ones_come_first_then_those_below_the_margin() -> None:
    found = mined(task(positive=2, known=[2], refused=[1, 5]))
    assert found.positions.tolist() == [[1, 5, 3, 4]]
    assert found.judged.tolist() == [[True, True, False, False]]


def test_an_unjudged_one_above_the_margin_is_none() -> None:
    found = mined(task(positive=4, known=[4], refused=[]))
    assert found.positions.tolist() == [[5, 6, 7, -1]]
    assert found.share_empty == 0.25


def test_no_known_positive_is_a_negative_whether_learned_from_or_not() -> None:
    found = mined(task(positive=0, known=[0, 1, 3], refused=[1]))
    assert found.positions.tolist() == [[2, 4, 5, 6]]


def test_siblings_are_none_unless_they_are_let() -> None:
    assert mined(task(positive=0, known=[0], refused=[], siblings=[0, 2])).positions.tolist() == [[1, 3, 4, 5]]
    assert mined(task(positive=0, known=[0], refused=[])).positions.tolist() == [[1, 2, 3, 4]]


def test_what_a_mining_replaced_is_counted() -> None:
    before = mined(task(positive=0, known=[0], refused=[]))
    after = mined(task(positive=0, known=[0, 2], refused=[]))
    assert after.share_replaced(before) == 0.25
    assert before.share_replaced(before) == 0.0


def test_the_margin_is_a_share_of_the_size_of_the_positives_score() -> None:
    """With 5 %: below 0.6 − 0.03 where the positive scores 0.6, below −0.6 − 0.03 where it scores −0.6."""
    for scores, wanted in (
        ([0.6, 0.99, 0.58, 0.56, 0.1, -0.9, 0.59, 0.575], [3, 4, 5, -1]),
        ([-0.6, 0.99, -0.58, -0.62, -0.64, -0.9, -0.57, -0.625], [4, 5, -1, -1]),
    ):
        shelf: Any = Shelf(np.column_stack([scores, np.sqrt(1 - np.square(scores))]).astype(np.float32))
        given = replace(task(positive=0, known=[0], refused=[]), frozen=shelf)
        assert mined(given).positions.tolist() == [wanted]
