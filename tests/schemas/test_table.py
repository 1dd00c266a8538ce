"""A table's contract: columns in any order, nothing more and nothing less."""

import re

import pyarrow as pa
import pytest

from darklode.schemas.table import Table, column

TABLE = Table(
    "marks",
    ("name",),
    "one row a name",
    pa.schema([column("name", pa.string(), "whose"), column("mark", pa.int32(), "how good", null=True)]),
)


def test_columns_come_in_any_order_and_take_the_tables_types() -> None:
    rows = TABLE.rows({"mark": pa.array([1, None], pa.int64()), "name": ["a", "b"]})
    assert rows.schema.equals(TABLE.schema, check_metadata=True)
    assert rows.to_pylist() == [{"name": "a", "mark": 1}, {"name": "b", "mark": None}]
    chunked = pa.chunked_array([["a"], ["b"]])
    assert TABLE.rows({"name": chunked})["name"].to_pylist() == ["a", "b"]


def test_a_nullable_column_may_be_left_out() -> None:
    assert TABLE.rows({"name": ["a", "b"]})["mark"].to_pylist() == [None, None]
    assert TABLE.rows({"name": []}).equals(TABLE.empty())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"mark": [1]}, "marks: unknown columns [], missing columns ['name']"),
        ({"name": ["a"], "note": ["b"]}, "marks: unknown columns ['note'], missing columns []"),
    ],
)
def test_other_columns_are_refused(columns: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TABLE.rows(columns)


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid, match="value 3000000000"):
        TABLE.rows({"name": ["a"], "mark": pa.array([3_000_000_000])})
    with pytest.raises(pa.ArrowInvalid):
        TABLE.rows({"name": ["a", "b"], "mark": [1]}).validate(full=True)


def test_a_column_holds_nulls_only_where_it_says_so() -> None:
    assert [(one.name, one.nullable) for one in TABLE.schema] == [("name", False), ("mark", True)]
    assert TABLE.schema.field("mark").metadata == {b"description": b"how good"}
