"""Parquet: types, bytes that are no text, rows that are too long."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.errors import InputError
from helpers.ingesting import documents_of


def test_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([1, 2, 3, 4, None], pa.int32()),
            "text": pa.array(["a", None, "b\0", b"\xff", "e"], pa.binary()),
            "title": pa.array(["x", "y", "z", "x", "y"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "d.parquet")
    got = documents_of(tmp_path / "d.parquet", tmp_path / "run")
    assert [(row["doc_id"], row["title"], row["text"]) for row in got.rows] == [("1", "x", "a")]
    assert sorted(got.reasons) == [("NUL byte", 3), ("empty text", 2), ("missing id", 5), ("not UTF-8", 4)]


def test_a_parquet_column_of_another_kind_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "text": [["b"]]}), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"column 'text' is of type list<.*>, not text"):
        documents_of(tmp_path / "d.parquet", tmp_path / "run")


def test_a_long_text_in_parquet_is_rejected(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["x" * 11, "y" * 10]}), tmp_path / "d.parquet")
    got = documents_of(tmp_path / "d.parquet", tmp_path / "run", max_row_bytes=10)
    assert ([row["doc_id"] for row in got.rows], got.reasons) == (["b"], [("row longer than 10 bytes", 1)])


def test_two_columns_of_one_name_are_an_error(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["text", "n", "text"])
    pq.write_table(table, tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"has several columns named 'text'; rename all but one"):
        documents_of(tmp_path / "d.parquet", tmp_path / "run")


def test_rows_of_nothing_are_rejects(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([None, "a", None], pa.string())}), tmp_path / "d.parquet")
    got = documents_of(tmp_path / "d.parquet", tmp_path / "run")
    assert [row["text"] for row in got.rows] == ["a"]
    assert [(row["reason"], row["line"], row["payload"]) for row in got.rejects] == [
        ("empty text", 1, "{}"),
        ("empty text", 3, "{}"),
    ]
