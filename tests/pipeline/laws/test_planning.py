"""How many queries come next: by the budget, else by what the leading law lacks."""

import numpy as np
import pytest

from darklode.pipeline.laws.forms import Points
from darklode.pipeline.laws.plan import Wanted, lacking
from darklode.pipeline.laws.planning import _size
from darklode.pipeline.laws.points import ENTROPY, LawKey
from darklode.pipeline.laws.verdict import NO_LAW, Found


def not_identifiable(size: float) -> Found:
    points = Points(np.array([size]), np.full(1, np.nan), np.ones(1))
    nothing = np.zeros(1, np.bool_)
    return Found(points, nothing, nothing, points, np.ones(1))


SMALL, MIDDLE, LARGE = (not_identifiable(size) for size in (10.0, 100.0, 1000.0))


@pytest.mark.parametrize(
    ("laws", "wanted"),
    [
        ({}, 0),
        ({LawKey("R@10", "labels"): SMALL, LawKey("R@10", "mined"): LARGE}, lacking(LARGE)),
        ({LawKey("R@10", "labels"): LARGE, LawKey("nDCG@10", "labels"): SMALL}, lacking(SMALL)),
        ({LawKey(ENTROPY, "labels"): LARGE, LawKey("nDCG@10", "labels"): SMALL}, lacking(SMALL)),
        ({LawKey("nDCG@10", "labels"): SMALL, LawKey("nDCG@10", "mined"): LARGE}, lacking(SMALL)),
        ({LawKey("nDCG@10", "labels", name): one for name, one in (("a", SMALL), ("b", MIDDLE))}, lacking(MIDDLE)),
    ],
    ids=["none", "no leading measure", "the leading measure", "nDCG before entropy", "own labels", "of two encoders"],
)
def test_the_leading_law_says_how_many_queries_come_next(laws: dict[LawKey, Found], wanted: int) -> None:
    assert _size(laws, Wanted()) == wanted


def test_a_budget_buys_whole_queries() -> None:
    assert _size({LawKey("nDCG@10", "labels"): LARGE}, Wanted(budget=500, per_label=0.6)) == 833


def test_where_labels_do_not_help_none_come_next() -> None:
    found = not_identifiable(100.0)
    found.verdict = NO_LAW
    assert _size({LawKey("nDCG@10", "labels"): found, LawKey("R@10", "labels"): LARGE}, Wanted()) == 0
