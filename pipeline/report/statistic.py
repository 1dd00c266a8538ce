"""A cached query over the tables of a run: what the statistics of card, report and terminal are made with."""

import re
from dataclasses import dataclass

import pyarrow as pa

from darklode.pipeline.base.artifacts import Tables, key_of
from darklode.schemas.tables import TABLES

_CACHE: dict[str, pa.Table] = {}
"""Results by query and table contents, because terminal, card and report show the same statistics."""

MAX_CACHED = 64
"""Maximum number of results in `_CACHE`; the oldest is dropped first."""


@dataclass(frozen=True)
class Statistic:
    """A query over the tables of a run that returns a small table.

    Attributes:
        query: SQL in DuckDB's dialect, with an ORDER BY wherever it may return several rows; `$1` is its parameter.
    """

    query: str

    def __call__(self, tables: Tables, *parameters: object) -> pa.Table:
        """Run the query, or return the cached result for the same contents of the tables.

        Args:
            tables: `duckdb_views.all_tables(run)`, or other tables that include those that the query reads.
            parameters: values of `$1`, `$2` etc.
        """
        key = self._key(tables, parameters)
        if key not in _CACHE:
            while len(_CACHE) >= MAX_CACHED:
                del _CACHE[next(iter(_CACHE))]
            _CACHE[key] = tables.sql(self.query, parameters)
        return _CACHE[key]

    def _key(self, tables: Tables, parameters: tuple[object, ...]) -> str:
        """Hash of the query, its parameters and the content of the tables whose names occur in the query."""
        words = set(re.findall(r"\w+", self.query))
        file_tables = [
            file_table for name in TABLES if name in words for file_table in TABLES[name].files if file_table in tables
        ]
        contents = {file_table: tables.content(file_table) for file_table in file_tables}
        return key_of(tables.url, self.query, [str(parameter) for parameter in parameters], contents)
