"""An adapted encoder on the page: the verdict, where it gains, and the curves of its training."""

from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.drawing import Curves
from darklode.schemas.settings import Settings
from helpers.adapted import TRIALS, adapted_tables
from helpers.report_runs import figure, figures, parsed, rendered, rewrite, rows_of, shown, text_of


@pytest.fixture
def adapted(run: Run) -> Run:
    return adapted_tables(run)


def test_the_page_tells_the_verdict_and_where_it_gains(adapted: Run) -> None:
    root = parsed(rendered(adapted))
    said = text_of(root)
    assert "Query encoder adapted from tiny by auto" in said
    assert "The adapted encoder is released NDCG@10 +0.050." in said
    assert "+0.050 (+0.030 to +0.070)" in text_of(figure(root, "adapter-verdict"))
    told = text_of(figure(root, "adapter-verdict"))
    assert "what the labels brought+0.010 (-0.010 to +0.030)" in told
    assert "hybrid" not in told, "unknown is not shown"
    lifts = rows_of(root, "adapter-lift")
    assert [row["measure"] for row in lifts] == ["nDCG@10", "R@10"] * 2
    assert "base" in text_of(figure(root, "adapter-lift"))
    assert "-0.100" in text_of(figure(root, "adapter-lift"))
    assert [key for key in figures(root) if key.startswith("adapter-")][:5] == [
        "adapter-verdict",
        "adapter-lift",
        "adapter-systems",
        "adapter-headroom",
        "adapter-course",
    ]


def test_a_gain_in_hybrid_search_is_named_so(adapted: Run) -> None:
    settings = Settings.model_validate({"adapt": {"serve_as": "hybrid"}})
    told = text_of(figure(parsed(rendered(adapted, settings)), "adapter-verdict"))
    assert "nDCG@10 gain over the base, both fused with BM25+0.050" in told


def test_without_a_deciding_query_no_system_is_compared(adapted: Run) -> None:
    assert rows_of(parsed(rendered(adapted)), "adapter-systems")
    rewrite(adapted, "given_adapter_verdict", lambda _, rows: [row | {"queries": 0} for row in rows])
    assert "adapter-systems" not in figures(parsed(rendered(adapted)))


def test_what_training_went_through_is_drawn_trial_by_trial(adapted: Run) -> None:
    loss, validation, replaced, spread = shown(adapted)["adapter-course"].drawings
    assert isinstance(loss, Curves)
    assert [said for _, said in loss.legend] == list(TRIALS)
    assert [len(one.points) for one in loss.curves] == [2, 2], "before the first step no loss is known"
    heights = [[point.y for point in one.points] for one in loss.curves]
    assert heights[0][0] > heights[0][1] > heights[1][0] > heights[1][1]
    assert isinstance(replaced, Curves)
    assert [len(one.points) for one in replaced.curves] == [1, 1]
    assert isinstance(validation, Curves)
    assert [point.is_chosen for point in validation.curves[1].points] == [False, False, True]
    assert isinstance(spread, Curves)
    assert {point.y for one in spread.curves for point in one.points} == {spread.curves[0].points[0].y}


def test_the_best_trial_is_marked_and_of_equals_the_one_nearest_to_the_base(adapted: Run) -> None:
    kept = [row for row in shown(adapted)["adapter-trials"].table.to_pylist() if row["kept"]]
    assert [(row["setting"], row["share"]) for row in kept] == [("0.0003", 1.0)]


def test_a_folder_without_a_verdict_shows_what_there_is(adapted: Run) -> None:
    for name in ("adapter_verdict", "training_log"):
        adapted.store.delete(f"manifests/given_{name}.json")
    found = figures(parsed(rendered(adapted)))
    assert not {"adapter-verdict", "adapter-lift", "adapter-course"} & set(found)
    assert "adapter-headroom" in found


def test_a_real_adapter_has_the_same_page_again(shipped: Path) -> None:
    page = rendered(Run(str(shipped / "adapter")))
    assert page == rendered(Run(str(shipped / "adapter")))
    root = parsed(page)
    assert {"adapter-course", "adapter-trials", "adapter-learned", "funnel", "evaluation"} <= set(figures(root))
    sizes = {text_of(one) for one in root.iter("div")}
    assert "Training queries 39" in sizes
