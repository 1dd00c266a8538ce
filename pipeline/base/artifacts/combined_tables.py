"""Tables of two folders, read as if they were one run's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb

from darklode.pipeline.base.artifacts.tables import Tables

if TYPE_CHECKING:
    import pyarrow.dataset as pads


class CombinedTables(Tables):
    """Tables of a run, and others of another folder, which win where both have a table.

    Args:
        own: tables of the run.
        others: tables of the other folder.
    """

    def __init__(self, own: Tables, others: Tables) -> None:
        super().__init__(own._store, own._parts | others._parts)
        self._others = others

    def dataset(self, table: str, columns: Sequence[str] | None = None) -> pads.Dataset:
        """As `Tables.dataset`, from the folder that has the table."""
        return self._others.dataset(table, columns) if table in self._others else super().dataset(table, columns)

    def view(self, connection: duckdb.DuckDBPyConnection, name: str, table: str) -> None:
        """As `Tables.view`, from the folder that has the table."""
        if table in self._others:
            self._others.view(connection, name, table)
        else:
            super().view(connection, name, table)
