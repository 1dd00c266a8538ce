"""What a review estimates: half widths that shrink with labels."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.measure_influence import ExpectedMeasure
from darklode.pipeline.base.sampled_pool import SampledPool
from darklode.pipeline.validate.review.figures import JudgePrecision, SystemMeasure, figure_of
from darklode.pipeline.validate.review.journal import pair_name
from darklode.schemas.tables import TABLES
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


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_precision_is_that_of_validate(tmp_path: Path, share: float) -> None:
    made = one_sided(pairs({"a": 200}))
    run = put_run(Run(str(tmp_path / "run")), made)
    sampled(run, query_share=1.0, max_pairs=1000)
    figure = JudgePrecision.from_tables(all_tables(run))
    keys = [key_of(row) for row in all_tables(run).read("review_sample").to_pylist()]
    keys = keys[: int(share * len(keys))]
    answered(run, honest(made, keys))
    validated(run)
    row = rows_of(run)[None, None]
    expected = (row["precision_high"] - row["precision_low"]) / 2
    assert figure.half_width(some_labels(run, made, share)) == pytest.approx(expected, rel=0.1)


def one_sided(made: Pairs) -> Pairs:
    """All of a query's pairs are relevant, or none is."""
    for (_, query, _), pair in made.items():
        pair["true"] = int(query[1:]) % 2
    return made


def test_labels_of_a_part_of_the_queries_leave_more_unknown_than_as_many_of_all() -> None:
    query = np.repeat(np.arange(40), 10)
    names = [str(pair) for pair in range(len(query))]
    measure = ExpectedMeasure(np.full(40, 0.5), np.full(len(query), 0.01))
    pool = SampledPool(query, np.zeros(len(query), np.int64), np.arange(40), np.array([4000]), np.array([True]))
    figure = SystemMeasure(pool, names, np.ones(len(query), bool), np.zeros(len(query)), measure)
    label = {name: float(of % 2) for name, of in zip(names, query, strict=True)}
    of_some_queries, of_all_queries = (
        figure.half_width({name: label[name] for name in rows}) for rows in (names[:100], names[::4])
    )
    assert of_some_queries > 1.3 * of_all_queries


def test_more_labels_make_the_intervals_narrower(run: Run, made: Pairs) -> None:
    for figure in (JudgePrecision.from_tables(all_tables(run)), measure_of(run, made)):
        half, everything = (figure.half_width(some_labels(run, made, share)) for share in (0.6, 1.0))
        assert 0 < everything < half < 1
        assert np.isnan(figure.half_width({}))


def measure_of(run: Run, made: Pairs) -> SystemMeasure:
    """The figure with every second query a test query with a positive."""
    queries = all_tables(run).read("queries")
    rows = [row | {"cluster_id": number} for number, row in enumerate(queries.to_pylist())]
    put(run, "queries", pa.Table.from_pylist(rows, queries.schema))
    rows = rows[1::2]
    keys = {name: [row[name] for row in rows] for name in ("tenant", "query_id")}
    n = len(rows)
    put(run, "held_out", TABLES["held_out"].rows(keys | {"split": ["test"] * n, "shares_positive": [False] * n}))
    figure = figure_of(all_tables(run), "evaluate")
    assert isinstance(figure, SystemMeasure)
    assert figure.name == "nDCG@10 of the fused ranking on these 100 test queries with a positive"
    return figure


def test_without_test_queries_the_measure_is_unknown(run: Run) -> None:
    assert figure_of(all_tables(run), "evaluate") is None
    assert isinstance(figure_of(all_tables(run), "validate"), JudgePrecision)
    assert figure_of(all_tables(run), "teach") is None
    assert figure_of(all_tables(run), "calibrate") is None
