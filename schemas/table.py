"""What a table is: its Arrow schema, its key, and what each field means."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1

STRINGS = pa.list_(pa.string())


def column(name: str, kind: pa.DataType, description: str, *, null: bool = False) -> pa.Field:
    """A column with its description; null only where it says so."""
    return pa.field(name, kind, nullable=null, metadata={"description": description})


@dataclass(frozen=True)
class Table:
    """A table's contract: `key` names the columns that identify a row (empty: rows have no identity).

    Attributes:
        patched: whether small changes to a large day are stored beside its files: new rows in `changed_column`, keys of
            removed rows in `removed_column`. Reading through Darklode merges them.
    """

    name: str
    key: tuple[str, ...]
    about: str
    schema: pa.Schema
    patched: bool = False

    @property
    def changed_column(self) -> str:
        """The table of rows that came since their day's files were written."""
        return f"{self.name}_changed"

    @property
    def removed_column(self) -> str:
        """The table of rows that went since then, by their keys."""
        return f"{self.name}_removed"

    @property
    def dated_key(self) -> tuple[str, ...]:
        """What identifies a row within a day's files: one that moved to another day may still lie in those of both."""
        return (*self.key, "date")

    @property
    def files(self) -> tuple[str, ...]:
        """The names under which its rows lie: its own, and those of its patch."""
        return (self.name, self.changed_column, self.removed_column) if self.patched else (self.name,)

    def with_patch(self) -> "tuple[Table, ...]":
        """The table and those of its patch."""
        if not self.patched:
            return (self,)
        came = f"rows of `{self.name}` that came or changed since the files of their day were written"
        went = f"rows that the files of `{self.name}` still hold although they went or changed"
        key = pa.schema([self.schema.field(name) for name in self.dated_key])
        return (
            self,
            Table(self.changed_column, self.key, came, self.schema),
            Table(self.removed_column, self.dated_key, went, key),
        )

    def empty(self) -> pa.Table:
        return self.schema.empty_table()

    def rows(self, columns: Mapping[str, object]) -> pa.Table:
        """Build rows from columns in any order; a nullable column that is left out is null.

        Raises:
            ValueError: a column that the table does not have, or a missing one that is not nullable.
        """
        unknown = columns.keys() - set(self.schema.names)
        missing = {f.name for f in self.schema if not f.nullable} - columns.keys()
        if unknown or missing:
            raise ValueError(f"{self.name}: unknown columns {sorted(unknown)}, missing columns {sorted(missing)}")
        length = len(next(iter(columns.values())))  # type: ignore[arg-type]
        arrays = [_as_array(columns.get(f.name), f.type, length) for f in self.schema]
        return pa.Table.from_arrays(arrays, schema=self.schema)


def _as_array(values: object, kind: pa.DataType, length: int) -> pa.Array | pa.ChunkedArray:
    if values is None:
        return pa.nulls(length, kind)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values if values.type == kind else values.cast(kind)
    return pa.array(values, kind)


TENANT = column("tenant", pa.string(), "who owns the row; tenants never meet")
QUERY_ID = column("query_id", pa.string(), "the query, unique within its tenant")
CHUNK_ID = column("chunk_id", pa.string(), "the chunk, unique within its tenant")

FITTED_KAPPA = column("fitted_kappa", pa.float64(), "that kappa, on the labels it was fitted on", null=True)
CROSS_VALIDATED_KAPPA = column(
    "cross_validated_kappa", pa.float64(), "kappa where each query's threshold is fitted on others", null=True
)
