"""What a review estimates: half widths that shrink with labels."""

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.validate.review.figures import JudgePrecision, SystemMeasure, figure_of
from darklode.pipeline.validate.review.journal import pair_name
from darklode.schemas.tables import QUERIES
from helpers.reviewed_run import Pairs, answered, honest, key_of, pairs, put_run, rows_of, sampled, validated
from helpers.runs import put


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
