"""Every engine writes a point as JSON of the columns that all engines have."""

import json

import duckdb
import pytest

from darklode.pipeline.export.engines import ENGINES
from darklode.pipeline.export.vector_engine import POINT_COLUMNS


@pytest.mark.parametrize("name", ENGINES)
def test_a_point_is_json_of_the_shared_columns(name: str) -> None:
    columns = ", ".join(
        f"{'[1.0]' if column == 'vector' else repr('x')} AS {column}" for column in POINT_COLUMNS.split(", ")
    )
    (line,) = (
        duckdb.connect().sql(f"SELECT CAST({ENGINES[name].line} AS VARCHAR) FROM (SELECT {columns})").fetchall()[0]
    )
    assert all(isinstance(json.loads(part), dict) for part in line.split("\n"))
