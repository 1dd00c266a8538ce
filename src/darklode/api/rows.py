"""Rows of a table, for notebooks: iteration, indexing, an HTML table, and conversion to pandas, Polars and Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.report.formatting import first, number

if TYPE_CHECKING:
    from pandas import DataFrame as PandasFrame
    from polars import DataFrame as PolarsFrame

ROWS_SHOWN = 10
CELL_CHARACTERS = 60

FORMER_NAMES = {"to_pandas": "df()", "to_polars": "pl()", "to_pylist": "list(rows)"}


@dataclass(frozen=True, repr=False)
class TableRows:
    """Rows of a table or of an SQL result; DuckDB, Polars and `pa.table(rows)` accept them as Arrow.

    A row is a dictionary: `rows[0]`, `rows[-1]`, `for row in rows`. `rows[10:20]` is a part of the rows, and
    `rows["query"]` the values of a column.
    """

    arrow: pa.Table

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.arrow.to_batches():
            yield from batch.to_pylist()

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> TableRows: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: int | slice | str) -> dict[str, Any] | TableRows | list[Any]:
        if isinstance(key, str):
            if key not in self.columns:
                raise KeyError(f"there is no column {key}; columns: {', '.join(self.columns)}")
            return list(self.arrow[key].to_pylist())
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return TableRows(self.arrow.slice(start, max(0, stop - start)))
            return TableRows(self.arrow.take(pa.array(range(start, stop, step), pa.int64())))
        position = key + len(self) if key < 0 else key
        if not 0 <= position < len(self):
            raise IndexError(f"there is no row {key}; there are {len(self):,} rows")
        return dict(self.arrow.slice(position, 1).to_pylist()[0])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.arrow.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<{len(self):,} rows: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        return html_table(self, ROWS_SHOWN)

    @property
    def columns(self) -> list[str]:
        """Column names, in order."""
        return list(self.arrow.column_names)

    def df(self) -> PandasFrame:
        """The rows as a pandas DataFrame.

        Raises:
            MissingPart: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingPart("df() needs pandas: pip install pandas") from error
        frame = self.arrow.to_pandas()
        assert isinstance(frame, pandas.DataFrame)
        return frame

    def pl(self) -> PolarsFrame:
        """The rows as a Polars DataFrame.

        Raises:
            MissingPart: Polars is not installed.
        """
        try:
            import polars
        except ImportError as error:
            raise MissingPart("pl() needs Polars: pip install polars") from error
        return polars.DataFrame(self.arrow)

    if not TYPE_CHECKING:  # a type checker reports the former names itself

        def __getattr__(self, name: str) -> Any:
            if name in FORMER_NAMES:
                raise AttributeError(f"TableRows.{name}() was replaced by {FORMER_NAMES[name]}")
            raise AttributeError(f"'TableRows' object has no attribute {name!r}")


def html_table(rows: TableRows, limit: int) -> str:
    """The first `limit` rows as an HTML table; every text is escaped, and long ones are cut."""
    is_number = [pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in rows.arrow.schema]
    head = "".join(f"<th>{escape(number(name))}</th>" for name in rows.columns)
    body = "".join(f"<tr>{''.join(map(_cell, row.values(), is_number))}</tr>" for row in rows[:limit])
    n_hidden = len(rows) - limit
    more = f"<p>{len(rows):,} rows, {n_hidden:,} of them not shown</p>" if n_hidden > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object, is_number: bool) -> str:
    alignment = "right" if is_number else "left"
    return f'<td style="text-align: {alignment}">{escape(first(number(value), CELL_CHARACTERS))}</td>'
