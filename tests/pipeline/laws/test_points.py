"""Points from files: what a row may be, and what falls."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.laws.points import POINTS_STAGE, UNNAMED_ENCODER, LawKey, groups, law_points, losses, points_of
from darklode.schemas.law_tables import LAW_POINTS


def read(file: Path, root: Path) -> pa.Table:
    run = Run(str(root / "run"))
    step = Step(POINTS_STAGE, call(law_points), source=str(file))
    run.execute(step.plan(run), step.execute)
    return run.tables("law_points").read("law_points")


def test_csv_and_parquet_give_the_same_points(tmp_path: Path) -> None:
    rows = pa.table({"size": [10, 20], "value": [2.0, 1.5], "seed": [0, 1], "note": ["a", "b"]})
    (tmp_path / "a.csv").write_text("size,value,seed,note\n10,2,0,a\n20,1.5,1,b\n")
    pq.write_table(rows, tmp_path / "a.parquet")
    found = [read(tmp_path / f"a.{kind}", tmp_path / kind) for kind in ("csv", "parquet")]
    assert found[0].equals(found[1])
    assert found[0]["source"].to_pylist() == ["labels", "labels"]
    assert found[0]["parameters"].null_count == 2


def test_what_rises_is_turned_round(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "measure,source,size,value\nnDCG@10,b,20,.4\ncontrastive_entropy,a,10,2\nnDCG@10,b,10,.3\n"
    )
    rows = read(tmp_path / "a.csv", tmp_path)
    assert losses(rows).tolist() == [0.6, 2.0, 0.7]
    assert groups(rows) == [LawKey("contrastive_entropy", "a"), LawKey("nDCG@10", "b")]
    mine = points_of(rows, LawKey("nDCG@10", "b"))
    assert (mine.size.tolist(), mine.value.tolist()) == ([10, 20], [0.7, 0.6])
    assert np.isnan(mine.parameters).all()


def of_encoders(*encoders: dict[str, object]) -> pa.Table:
    """Three sizes of each; the loss is 1, 2, … by encoder."""
    rows = [
        {"measure": "loss", "source": "labels", "size": size, "value": float(place)} | about
        for size in (10, 20, 40)
        for place, about in enumerate(encoders, 1)
    ]
    return pa.Table.from_pylist(rows, schema=LAW_POINTS.schema)


@pytest.mark.parametrize(
    ("encoders", "names"),
    [
        ([{"encoder": "a"}], [None]),
        ([{"parameters": 1e6}, {"parameters": 2e6}], [None]),
        ([{"encoder": "a", "parameters": 1e6}, {"encoder": "b", "parameters": 2e6}], [None]),
        ([{"encoder": "a", "parameters": 1e6}, {"encoder": "b", "parameters": 1e6}], ["a", "b"]),
        ([{"encoder": "a"}, {"encoder": "b"}], ["a", "b"]),
        ([{"encoder": "a", "parameters": 1e6}, {"encoder": "b"}], ["a", "b"]),
        ([{"encoder": "a"}, {}], ["a", UNNAMED_ENCODER]),
        ([{"encoder": "m", "encoder_id": "m-256"}, {"encoder": "m", "encoder_id": "m-64"}], ["m-256", "m-64"]),
        ([{"encoder": "x", "encoder_id": "same"}, {"encoder": "y", "encoder_id": "same"}], [None]),
    ],
)
def test_encoders_that_parameters_do_not_tell_apart_get_a_law_each(
    encoders: list[dict[str, object]], names: list[str | None]
) -> None:
    rows = of_encoders(*encoders)
    assert groups(rows) == [LawKey("loss", "labels", name) for name in names]
    if names != [None]:
        assert [set(points_of(rows, LawKey("loss", "labels", name)).value) for name in names] == [{1.0}, {2.0}]


@pytest.mark.parametrize("row", ["-1,2", "10,0", "10,-1", "10,nan"])
def test_a_row_that_is_no_point_is_named(row: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"size,value\n10,2\n{row}\n")
    with pytest.raises(InputError, match="row 2"):
        read(tmp_path / "a.csv", tmp_path)


def test_columns_that_lack_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("size,loss\n10,2\n")
    with pytest.raises(InputError, match="misses the columns value"):
        read(tmp_path / "a.csv", tmp_path)


def test_words_for_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("size,value\nten,2\n")
    with pytest.raises(InputError, match="ten"):
        read(tmp_path / "a.csv", tmp_path)


def test_a_law_is_named_by_source_and_encoder() -> None:
    assert LawKey("nDCG@10", "judge").label == "judge"
    assert LawKey("nDCG@10", "judge", "minilm").label == "judge, minilm"
