"""Builders of small runs, and where things lie."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from darklode.pipeline.base.artifacts import Manifest, Output, Run, Stage, Tables
from darklode.schemas.tables import TABLES

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = REPOSITORY.parent / "shared"
PYTHONPATH = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY / "tests")])
"""For processes that tests start: Darklode and the tests' helpers, from this very checkout."""
SAMPLE = REPOSITORY / "data" / "sample"

Work = Callable[[Tables, Output], None]


def put(run: Run, table: str, rows: pa.Table) -> None:
    """Give a run a finished table, as if a stage had written it."""
    stage = Stage(f"given_{table}", 1, (), TABLES[table].files)
    run.execute(run.plan(stage, {}), lambda _tables, output: output.write(table, rows))


def written(run: Run, table: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Give a run a finished table; columns that a row does not name are empty or null."""
    schema = TABLES[table].schema
    blank = {field.name: None if field.nullable else _blank(field.type) for field in schema}
    put(run, table, pa.Table.from_pylist([blank | dict(row) for row in rows], schema=schema))


def _blank(kind: pa.DataType) -> object:
    return (
        "" if pa.types.is_string(kind) else [] if pa.types.is_list(kind) else False if pa.types.is_boolean(kind) else 0
    )


def execute(run: Run, stage: Stage, work: Work) -> Manifest:
    """Run one stage's work on a run's tables."""
    return run.execute(run.plan(stage, {}), work)


def read(run: Run, table: str) -> list[dict[str, object]]:
    """A table's rows, in the order written."""
    rows: list[dict[str, object]] = run.tables(table).read(table).to_pylist()
    return rows


def documents(**columns: list[str]) -> pa.Table:
    """Rows of `documents` from doc_id and text, the rest filled in."""
    length = len(columns["doc_id"])
    filled = {"tenant": ["default"] * length, "source": ["test"] * length, "content_hash": columns["text"]}
    return TABLES["documents"].rows(filled | columns)
