"""Table contracts: Arrow schema, key, and a description of each column."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 2

STRINGS = pa.list_(pa.string())


def column(name: str, kind: pa.DataType, description: str, *, null: bool = False) -> pa.Field:
    """A column with its description; nullable only if `null` is set."""
    return pa.field(name, kind, nullable=null, metadata={"description": description})


@dataclass(frozen=True)
class Table:
    """Contract of a table: `key` names the columns that identify a row (empty: rows have no identity).

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
        """Name of the table of rows added since their day's files were written."""
        return f"{self.name}_changed"

    @property
    def removed_column(self) -> str:
        """Name of the table with the keys of rows removed since then."""
        return f"{self.name}_removed"

    @property
    def dated_key(self) -> tuple[str, ...]:
        """Key of a row within a day's files: a row that moved to another day may be in the files of both."""
        return (*self.key, "date")

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the tables that hold its rows: its own and those of its patch."""
        return (self.name, self.changed_column, self.removed_column) if self.patched else (self.name,)

    def with_patch(self) -> "tuple[Table, ...]":
        """The table and those of its patch."""
        if not self.patched:
            return (self,)
        came = f"rows of `{self.name}` added or changed since the files of their day were written"
        went = f"keys of rows in the files of `{self.name}` that were removed or changed since"
        key = pa.schema([self.schema.field(name) for name in self.dated_key])
        return (
            self,
            Table(self.changed_column, self.key, came, self.schema),
            Table(self.removed_column, self.dated_key, went, key),
        )

    def empty(self) -> pa.Table:
        return self.schema.empty_table()

    def rows(self, columns: Mapping[str, object]) -> pa.Table:
        """Build rows from columns in any order; a missing nullable column is null.

        Raises:
            ValueError: unknown column, or missing column that is not nullable.
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


TENANT = column("tenant", pa.string(), "owner of the row; tenants are never mixed")
QUERY_ID = column("query_id", pa.string(), "query id, unique within the tenant")
CHUNK_ID = column("chunk_id", pa.string(), "chunk id, unique within the tenant")

CLUSTER_INTERVAL = (
    column("low", pa.float64(), "lower end, 95 % bootstrap-t interval over clusters; null for one cluster", null=True),
    column("high", pa.float64(), "upper end", null=True),
)
"""Columns of a difference's interval."""

RELEASE_TEST = (
    *CLUSTER_INTERVAL,
    column(
        "bounded_low", pa.float64(), "97.5 % lower bound that allows for a rare loss not seen in any cluster", null=True
    ),
    column("p", pa.float64(), "two-sided p-value of a sign-flip test over clusters", null=True),
    column("clusters", pa.int64(), "clusters of near-duplicates among these queries", null=True),
    column(
        "detectable", pa.float64(), "smallest true difference released with power .8; null for one cluster", null=True
    ),
)
"""Columns of the test that decides a release."""

FITTED_KAPPA = column(
    "fitted_kappa", pa.float64(), "kappa at the fitted threshold, on the labels it was fitted on", null=True
)
CROSS_VALIDATED_KAPPA = column(
    "cross_validated_kappa", pa.float64(), "kappa with each query's threshold fitted on the other queries", null=True
)
