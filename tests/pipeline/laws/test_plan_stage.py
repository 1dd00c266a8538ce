"""How many queries come next: by the budget, else by what the leading law lacks."""

import numpy as np
import pytest

from darklode.pipeline.laws.functional_forms import LawPoints
from darklode.pipeline.laws.label_plan import PlanRequest, n_missing_labels
from darklode.pipeline.laws.plan_stage import _batch_size
from darklode.pipeline.laws.points import ENTROPY_MEASURE, LawKey
from darklode.pipeline.laws.verdict import NO_LAW, LawResult


def not_identifiable(size: float) -> LawResult:
    points = LawPoints(np.array([size]), np.full(1, np.nan), np.ones(1))
    nothing = np.zeros(1, np.bool_)
    return LawResult(points, nothing, nothing, points, np.ones(1))


SMALL, MIDDLE, LARGE = (not_identifiable(size) for size in (10.0, 100.0, 1000.0))


@pytest.mark.parametrize(
    ("laws", "wanted"),
    [
        ({}, 0),
        ({LawKey("R@10", "labels"): SMALL, LawKey("R@10", "mined"): LARGE}, n_missing_labels(LARGE)),
        ({LawKey("R@10", "labels"): LARGE, LawKey("nDCG@10", "labels"): SMALL}, n_missing_labels(SMALL)),
        ({LawKey(ENTROPY_MEASURE, "labels"): LARGE, LawKey("nDCG@10", "labels"): SMALL}, n_missing_labels(SMALL)),
        ({LawKey("nDCG@10", "labels"): SMALL, LawKey("nDCG@10", "mined"): LARGE}, n_missing_labels(SMALL)),
        (
            {LawKey("nDCG@10", "labels", name): one for name, one in (("a", SMALL), ("b", MIDDLE))},
            n_missing_labels(MIDDLE),
        ),
    ],
    ids=["none", "no leading measure", "the leading measure", "nDCG before entropy", "own labels", "of two encoders"],
)
def test_the_leading_law_says_how_many_queries_come_next(laws: dict[LawKey, LawResult], wanted: int) -> None:
    assert _batch_size(laws, PlanRequest()) == wanted


def test_a_budget_buys_whole_queries() -> None:
    assert _batch_size({LawKey("nDCG@10", "labels"): LARGE}, PlanRequest(budget=500, per_label=0.6)) == 833


def test_where_labels_do_not_help_none_come_next() -> None:
    found = not_identifiable(100.0)
    found.verdict = NO_LAW
    assert _batch_size({LawKey("nDCG@10", "labels"): found, LawKey("R@10", "labels"): LARGE}, PlanRequest()) == 0
