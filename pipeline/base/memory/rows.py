"""Row kinds of a keyed store and their Parquet parts, which are checked when written and when read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from darklode.pipeline.base.artifacts.store import Store
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.parts import Damaged
from darklode.pipeline.base.types import Ints, Keys

WRITTEN_AT = pa.field("written_at", pa.timestamp("ns", "UTC"), nullable=False)
_MAX_TIME = np.int64(2**63 - 1)
_ODD_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, as in Fibonacci hashing
_GROUP_ROWS = 1 << 13
"""Rows per row group: a look-up typically reads some hundred neighboring rows."""
_GROUPS_AT_ONCE = 8  # row groups whose keys are read together; bounds memory


@dataclass(frozen=True)
class RowKind:
    """A kind of rows.

    Attributes:
        top: folder below the root.
        owner: type of owner, such as `judge`.
        key: columns of content hashes that form a row's key.
        values: the other columns. Nullable ones may be added later: parts without them are read with nulls.
        answer: a column of `values`. Rows in which it is null are failed attempts: their column `error` has the reason,
            and any later row replaces them. None: rows cannot fail.
    """

    top: str
    owner: str
    key: tuple[str, ...]
    values: pa.Schema
    answer: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """Schema of a part. Merging keeps `written_at`, which decides which of several rows is valid."""
        hashes = (pa.field(name, pa.string(), nullable=False) for name in self.key)
        return pa.schema([*hashes, WRITTEN_AT, *self.values])

    def empty(self, columns: list[str]) -> pa.Table:
        """An empty table with some columns."""
        return pa.schema([self.schema.field(name) for name in columns]).empty_table()

    def keys(self, rows: pa.Table) -> Keys:
        """The key of each row, shape (n_rows, 2).

        Hashes are parts of SHA-256, so key collisions are as unlikely as hash collisions.

        Raises:
            ValueError: a hash is not 32 hex digits.
        """
        # Multiplying by an odd number is invertible, and makes (a, b) different from (b, a).
        return reduce(lambda keys, more: keys * _ODD_MULTIPLIER ^ more, (keys_of(rows[name]) for name in self.key))

    @property
    def attempt(self) -> tuple[str, ...]:
        """The columns of answer and error."""
        return (self.answer, "error") if self.answer else ()

    def is_silent(self, rows: pa.Table) -> bool:
        """Whether a failed attempt has no error text."""
        if self.answer is None:
            return False
        return bool(pc.any(pc.and_(pc.is_null(rows[self.answer]), pc.is_null(rows["error"]))).as_py())

    @property
    def rank(self) -> list[str]:
        """The columns that decide which of several rows with a key is valid."""
        return [WRITTEN_AT.name, *self.attempt[:1]]

    def select_current(self, groups: Ints, rows: pa.Table) -> Ints:
        """Index of the valid row of each group of rows with equal keys; `groups` has shape (n_rows,).

        Answers precede failures; the earliest answer or the latest failure is valid; ties go to the first row.
        """
        written_at = rows[WRITTEN_AT.name].cast(pa.int64()).to_numpy()
        good = pc.is_valid(rows[self.answer]).to_numpy() if self.answer else np.ones(len(rows), dtype=np.bool_)
        order = np.lexsort((np.where(good, written_at - _MAX_TIME, _MAX_TIME - written_at), groups))
        return np.asarray(order[np.diff(groups[order], prepend=-1) != 0])


def encode(rows: pa.Table, kind: RowKind, owner_id: str) -> bytes:
    """Encode rows as a part, with the owner's id and page checksums."""
    sink = pa.BufferOutputStream()
    marked = rows.combine_chunks().replace_schema_metadata({f"{kind.owner}_id": owner_id})
    pq.write_table(marked, sink, compression="zstd", row_group_size=_GROUP_ROWS, write_page_checksum=True)
    return bytes(sink.getvalue())


class OpenPart:
    """A part opened for reading.

    Columns unknown to an earlier version are null; columns of a later version are ignored.

    Raises:
        Damaged: the part is damaged, or not of this owner.
        FileNotFoundError: the part was merged or pruned.
        ArtifactError: the storage cannot be read.
    """

    def __init__(self, store: Store, name: str, kind: RowKind, owner_id: str) -> None:
        self._store, self._name, self._kind = store, name, kind
        try:
            self._file = _open(store.filesystem.open_input_file(store.path(name)))
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError):
            self._file = self._read_in_memory()
        schema = self._file.schema_arrow
        if (schema.metadata or {}).get(f"{kind.owner}_id".encode()) != owner_id.encode():
            raise Damaged(f"it does not contain {kind.top} of this {kind.owner}")
        wrong = [field.name for field in kind.schema if not self._fits(schema, field)]
        if wrong:
            raise Damaged(f"its columns {', '.join(wrong)} are not those of {kind.top}")

    @property
    def is_newer(self) -> bool:
        """Whether it has columns unknown to this version."""
        return not set(self._file.schema_arrow.names) <= set(self._kind.schema.names)

    def read(self, columns: list[str], rows: Ints | None = None) -> pa.Table:
        """Read columns at `rows`, in that order; None: all rows.

        Raises:
            Damaged: the content is damaged.
        """
        sizes = np.array([self._file.metadata.row_group(n).num_rows for n in range(self._file.num_row_groups)])
        if rows is None:
            return self._groups(list(range(len(sizes))), columns)
        starts = np.cumsum(sizes) - sizes
        group = np.searchsorted(starts, rows, side="right") - 1
        row_groups, at = np.unique(group, return_inverse=True)
        shifted = np.cumsum(sizes[row_groups]) - sizes[row_groups]
        return self._groups(row_groups.tolist(), columns).take(pa.array(rows - starts[group] + shifted[at]))

    def keys(self) -> Keys:
        """Read the key of each row.

        Raises:
            Damaged: the content is damaged, a hash is invalid, or a failed attempt has no error text.
        """
        keys, numbers = [np.empty((0, 2), dtype=np.uint64)], list(range(self._file.num_row_groups))
        columns = [*self._kind.key, *self._kind.attempt]
        for start in range(0, len(numbers), _GROUPS_AT_ONCE):
            rows = self._groups(numbers[start : start + _GROUPS_AT_ONCE], columns)
            if self._kind.is_silent(rows):
                raise Damaged("a failed attempt has no error text")
            try:
                keys.append(self._kind.keys(rows))
            except ValueError as error:
                raise Damaged(str(error)) from error
        return np.concatenate(keys)

    def _fits(self, schema: pa.Schema, field: pa.Field) -> bool:
        field_index = schema.get_field_index(field.name)
        if field_index < 0:
            return bool(field.nullable and field.name not in self._kind.attempt)
        return bool(schema.field(field_index).type == field.type)

    def _groups(self, numbers: list[int], columns: list[str]) -> pa.Table:
        """Read columns of some row groups; missing columns are null."""
        present_columns = [name for name in columns if name in self._file.schema_arrow.names]
        try:
            table = self._file.read_row_groups(numbers, present_columns)
        except (pa.ArrowException, OSError):
            self._file = self._read_in_memory()
            table = self._file.read_row_groups(numbers, present_columns)
        schema = self._kind.empty(columns).schema
        arrays = [table[f.name] if f.name in present_columns else pa.nulls(len(table), f.type) for f in schema]
        return pa.table(arrays, schema=schema)

    def _read_in_memory(self) -> pq.ParquetFile:
        """Read the whole part after a read error, to distinguish network errors from damaged parts."""
        try:
            data = self._store.read(self._name)
        except OSError as error:
            raise ArtifactError(f"{self._store.path(self._name)} cannot be read: {_first_line(error)}") from error
        if data is None:
            raise FileNotFoundError(self._name)
        try:
            part = _open(pa.BufferReader(data))
            part.read()
        except (pa.ArrowException, OSError) as error:
            raise Damaged(_first_line(error)) from error
        return part


def _open(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(source, pre_buffer=True, page_checksum_verification=True)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
