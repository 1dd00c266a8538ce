"""When a review is precise enough: half widths that shrink with labels, and the sentence about them."""

import math
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.validate.review.journal import pair_name
from darklode.pipeline.validate.review.stopping import (
    LABELS_PER_UPDATE,
    JudgePrecision,
    StoppingRule,
    SystemMeasure,
    figure_of,
)
from helpers.reviewed_run import Pairs, answered, honest, key_of, pairs, put_run, rows_of, sampled, validated


class FixedFigure:
    """A figure with a half width that the test sets."""

    name = "precision"

    def __init__(self, value: float) -> None:
        self.value = value
        self.n_computed = 0

    def half_width(self, labels: dict[str, float]) -> float:
        self.n_computed += 1
        return self.value


@pytest.fixture
def made() -> Pairs:
    return pairs({"a": 200})


@pytest.fixture
def run(tmp_path: Path, made: Pairs) -> Run:
    run = put_run(Run(str(tmp_path / "run")), made)
    sampled(run, query_share=0.5, max_pairs=400)
    return run


def some_labels(run: Run, made: Pairs, share: float) -> dict[str, float]:
    keys = [key_of(row) for row in all_tables(run).read("review_sample").to_pylist()]
    return {pair_name(*key): float(made[key]["true"] > 0) for key in keys[: int(share * len(keys))]}


@pytest.mark.parametrize(
    ("half_width", "sentence"),
    [
        (0.0501, "precision: ± .051, goal ± .05"),
        (0.05, "precision: ± .05 reached (± .05), you can stop"),
        (0.0291, "precision: ± .05 reached (± .03), you can stop"),
        (math.nan, "precision: too few labels for an interval; goal ± .05"),
    ],
)
def test_the_sentence_says_when_to_stop(half_width: float, sentence: str) -> None:
    assert StoppingRule(FixedFigure(half_width)).sentence({"p": 1.0}) == sentence


def test_another_goal_and_no_figure() -> None:
    assert "± .03 reached" in StoppingRule(FixedFigure(0.029), 0.03).sentence({"p": 1.0})
    assert StoppingRule(None).sentence({"p": 1.0}) == ""


def test_the_interval_is_computed_every_few_labels() -> None:
    figure = FixedFigure(0.1)
    rule = StoppingRule(figure)
    for n in range(3 * LABELS_PER_UPDATE):
        rule.sentence({f"p{number}": 1.0 for number in range(n)})
    assert figure.n_computed == 3


def test_precision_is_that_of_validate(run: Run, made: Pairs) -> None:
    figure = JudgePrecision.from_tables(all_tables(run))
    keys = [key_of(row) for row in all_tables(run).read("review_sample").to_pylist()]
    answered(run, honest(made, keys))
    validated(run)
    row = rows_of(run)[None, None]
    expected = (row["precision_high"] - row["precision_low"]) / 2
    assert figure.half_width(some_labels(run, made, 1.0)) == pytest.approx(expected, rel=0.1)


def test_more_labels_make_the_intervals_narrower(run: Run, made: Pairs) -> None:
    for figure in (JudgePrecision.from_tables(all_tables(run)), measure_of(run, made)):
        half, everything = (figure.half_width(some_labels(run, made, share)) for share in (0.4, 1.0))
        assert 0 < everything < half < 1
        assert np.isnan(figure.half_width({}))


def measure_of(run: Run, made: Pairs) -> SystemMeasure:
    """The figure with every query a test query."""
    from darklode.schemas.tables import QUERIES
    from helpers.runs import put

    rows = all_tables(run).read("queries").to_pylist()
    put(
        run,
        "queries",
        QUERIES.rows(
            {name: [row[name] for row in rows] for name in QUERIES.schema.names if name != "split"}
            | {"split": ["test"] * len(rows)}
        ),
    )
    figure = figure_of(all_tables(run), "evaluate")
    assert isinstance(figure, SystemMeasure)
    return figure


def test_without_test_queries_the_measure_is_unknown(run: Run) -> None:
    assert figure_of(all_tables(run), "evaluate") is None
    assert isinstance(figure_of(all_tables(run), "validate"), JudgePrecision)
    assert figure_of(all_tables(run), "teach") is None
    assert figure_of(all_tables(run), "calibrate") is None
