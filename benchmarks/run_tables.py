"""Writes tables of a run as if stages had made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.schemas.tables import TABLES

TENANT = "default"


def write_parts(run: Run, table: str, parts: Iterable[pa.Table]) -> None:
    """Write a table part by part."""

    def work(_tables: Tables, output: Output) -> None:
        for part in parts:
            output.write(table, part)

    run.execute(run.plan(Stage(f"given_{table}", 1, (), (table,)), {}), work)


def write_columns(run: Run, table: str, columns: Mapping[str, Any], **same: object) -> None:
    """Write a table; `same` has columns with one value for all rows, beside the tenant."""
    write_parts(run, table, [table_rows(table, columns, **same)])


def table_rows(table: str, columns: Mapping[str, Any], **same: object) -> pa.Table:
    """Rows of a table of Darklode."""
    n = len(next(iter(columns.values())))
    constant = {name: pa.array([value]).take(pa.repeat(0, n)) for name, value in ({"tenant": TENANT} | same).items()}
    return TABLES[table].rows(constant | dict(columns))
