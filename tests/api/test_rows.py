"""Rows of a table as a data scientist meets them."""

import re
from xml.etree import ElementTree

import duckdb
import pandas as pd
import polars
import pyarrow as pa
import pytest

from darklode.api.rows import CELL_CHARACTERS, ROWS_SHOWN, TableRows

ROWS = TableRows(pa.table({"query": ["a", "b", "c"], "n": [1, None, 3], "share": [0.5, 0.25, 1.0]}))


def test_rows_are_a_sequence_of_dictionaries() -> None:
    assert len(ROWS) == 3
    assert ROWS[0] == {"query": "a", "n": 1, "share": 0.5}
    assert ROWS[-1] == list(ROWS)[2] == {"query": "c", "n": 3, "share": 1.0}
    assert ROWS["n"] == [1, None, 3]
    assert [row["query"] for row in ROWS[1:]] == ["b", "c"]
    assert ROWS[::-2]["query"] == ["c", "a"]
    assert len(ROWS[5:2]) == 0
    assert repr(ROWS) == "<3 rows: query, n, share>"


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (3, IndexError, "no row 3; there are 3 rows"),
        (-4, IndexError, "no row -4"),
        ("x", KeyError, "columns: query, n"),
    ],
)
def test_what_is_not_there_is_an_error(key: int | str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ROWS[key]


def test_rows_become_frames_and_arrow() -> None:
    assert pa.table(ROWS).equals(ROWS.arrow)
    assert isinstance(ROWS.df(), pd.DataFrame)
    assert isinstance(ROWS.pl(), polars.DataFrame)
    assert ROWS.df()["query"].tolist() == ROWS.pl()["query"].to_list() == ROWS["query"]
    assert duckdb.sql("SELECT sum(n) FROM ROWS").fetchall() == [(4,)]


@pytest.mark.parametrize("name", ["to_pandas", "to_polars", "to_pylist"])
def test_a_former_name_says_the_new_one(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"{name}\(\) was replaced by (df\(\)|pl\(\)|list\(rows\))"):
        getattr(ROWS, name)
    with pytest.raises(AttributeError, match="no attribute 'todf'"):
        ROWS.todf  # type: ignore[attr-defined] # noqa: B018


def test_a_notebook_shows_the_first_rows_and_runs_nothing_in_them() -> None:
    hostile = ["<script>alert(1)</script>", "a & b", '"><img src=x onerror=alert(1)>', "\x00\x1b[31m\ud800", None]
    names = {"<b>query</b>": hostile * 5, "n": list(range(25)), "long": ["x" * 1000] * 25}
    html = TableRows(
        pa.table({name: pa.array([_valid(value) for value in values]) for name, values in names.items()})
    )._repr_html_()
    page = ElementTree.fromstring(f"<div>{html}</div>")
    assert {element.tag for element in page.iter()} == {"div", "table", "thead", "tbody", "tr", "th", "td", "p"}
    assert {name for element in page.iter() for name in element.attrib} == {"style"}
    rows = [[cell.text for cell in row] for row in page.findall(".//tbody/tr")]
    assert len(rows) == ROWS_SHOWN
    assert [row[0] for row in rows[:3]] == hostile[:3]
    assert rows[4][0] == "–"
    assert max(len(row[2] or "") for row in rows) <= CELL_CHARACTERS + len(" …")
    assert [cell.text for cell in page.findall(".//th")] == list(names)
    assert "25 rows, 15 of them not shown" in html
    assert not re.search("[\x00\x1b]", html)


def _valid(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
