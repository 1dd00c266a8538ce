"""The ledger's files: verdicts as Parquet, checked when they are written and again when they are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.artifacts.store import Store
from pipeline.encoders.keys import Keys, keys_of
from pipeline.errors import ArtifactError
from pipeline.judges.port import REPLIES, check_replies, silent

ENDING = ".parquet"

_NAMED = ("query_hash", "chunk_hash", "written_at")
PART = pa.schema(
    [
        pa.field("query_hash", pa.string(), nullable=False),
        pa.field("chunk_hash", pa.string(), nullable=False),
        pa.field("written_at", pa.timestamp("ns", "UTC"), nullable=False),
        *REPLIES,
    ]
)
"""A verdict in the ledger; `written_at` stays as it was when parts are merged, and decides which verdict stands."""

_GROUP_ROWS = 1 << 13
"""Rows that are read together: a look-up wants some hundred neighbours."""
_GROUPS_AT_ONCE = 8
_LAST = np.int64(2**63 - 1)


class Damaged(Exception):
    """A part that cannot be trusted: torn, or not the ledger's."""


def verdict_rows(judge_id: str, pairs: pa.Table, replies: pa.Table, written_at: int) -> pa.Table:
    """Rows of `PART`, written at a time in nanoseconds since 1970.

    Raises:
        ValueError: the replies have other rows than `REPLIES` or than the pairs, a hash has another form, or a null
            label comes without an error.
    """
    check_replies(judge_id, pairs, replies)
    pair_keys(pairs)
    time = pa.repeat(pa.scalar(written_at, PART.field("written_at").type), pairs.num_rows)
    said = [replies[name] for name in REPLIES.names]
    return pa.table([pairs["query_hash"], pairs["chunk_hash"], time, *said], schema=PART)


def pair_keys(pairs: pa.Table) -> Keys:
    """One key for each pair's two hashes, shape (n_pairs, 2).

    Both hashes are SHA-256, so that different pairs share a key as rarely as different texts share a hash.

    Raises:
        ValueError: a hash is not 32 hex digits.
    """
    # An odd factor keeps every bit of the query's hash, and (a, b) apart from (b, a).
    return np.asarray(keys_of(pairs["query_hash"]) * np.uint64(0x9E3779B97F4A7C15) ^ keys_of(pairs["chunk_hash"]))


def precedence(rows: pa.Table) -> NDArray[np.int64]:
    """Which of several verdicts on one pair stands: the largest. Labels above nulls; early labels, late nulls first."""
    written = rows["written_at"].cast(pa.int64()).to_numpy()
    labelled = pc.is_valid(rows["relevant"]).to_numpy()
    return np.asarray(np.where(labelled, _LAST - written, written - _LAST))


def encode(rows: pa.Table, judge_id: str) -> bytes:
    """A part's bytes: rows of `PART`, with the judge's id and checksums."""
    sink = pa.BufferOutputStream()
    marked = rows.combine_chunks().replace_schema_metadata({"judge_id": judge_id})
    pq.write_table(marked, sink, compression="zstd", row_group_size=_GROUP_ROWS, write_page_checksum=True)
    return bytes(sink.getvalue())


class VerdictPart:
    """A part opened for reading.

    Fields that a version of Darklode before or after this one did not know are null or left out.

    Raises:
        Damaged: it is torn, or holds something else than this judge's verdicts.
        FileNotFoundError: it was merged into another part, or pruned.
        ArtifactError: the place cannot be read now.
    """

    def __init__(self, store: Store, name: str, judge_id: str) -> None:
        self._store, self._name = store, name
        try:
            self._file = _open(store.filesystem.open_input_file(store.path(name)))
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError):
            self._file = self._whole()
        schema = self._file.schema_arrow
        if (schema.metadata or {}).get(b"judge_id") != judge_id.encode():
            raise Damaged("it holds no verdicts of this judge")
        wrong = [field.name for field in PART if not _fits(schema, field)]
        if wrong:
            raise Damaged(f"its columns {', '.join(wrong)} are not a verdict's")

    def read(self, columns: list[str], rows: NDArray[np.int64] | None = None) -> pa.Table:
        """Columns of `PART` at `rows`, in that order; all rows where none are named.

        Raises:
            Damaged: the content is torn.
        """
        sizes = np.array([self._file.metadata.row_group(n).num_rows for n in range(self._file.num_row_groups)])
        if rows is None:
            return self._groups(list(range(len(sizes))), columns)
        starts = np.cumsum(sizes) - sizes
        group = np.searchsorted(starts, rows, side="right") - 1
        wanted, at = np.unique(group, return_inverse=True)
        shifted = np.cumsum(sizes[wanted]) - sizes[wanted]
        return self._groups(wanted.tolist(), columns).take(pa.array(rows - starts[group] + shifted[at]))

    def basis(self) -> tuple[Keys, NDArray[np.int64]]:
        """Every row's key and precedence.

        Raises:
            Damaged: the content is torn, a hash has another form, or a null label comes without an error.
        """
        keys, order = [np.empty((0, 2), dtype=np.uint64)], [np.empty(0, dtype=np.int64)]
        numbers = list(range(self._file.num_row_groups))
        for start in range(0, len(numbers), _GROUPS_AT_ONCE):
            rows = self._groups(numbers[start : start + _GROUPS_AT_ONCE], [*_NAMED, "relevant", "error"])
            if silent(rows):
                raise Damaged("a null label without an error")
            try:
                keys.append(pair_keys(rows))
            except ValueError as error:
                raise Damaged(str(error)) from error
            order.append(precedence(rows))
        return np.concatenate(keys), np.concatenate(order)

    def _groups(self, numbers: list[int], columns: list[str]) -> pa.Table:
        """Columns of `PART` in some row groups; those that the part does not have are null."""
        known = [name for name in columns if name in self._file.schema_arrow.names]
        try:
            found = self._file.read_row_groups(numbers, known)
        except (pa.ArrowException, OSError):
            self._file = self._whole()
            found = self._file.read_row_groups(numbers, known)
        arrays = [found[name] if name in known else pa.nulls(len(found), PART.field(name).type) for name in columns]
        return pa.table(arrays, schema=pa.schema([PART.field(name) for name in columns]))

    def _whole(self) -> pq.ParquetFile:
        """The part from memory, after it could not be read: a network that fails must not look like a torn part."""
        try:
            data = self._store.read(self._name)
        except OSError as error:
            raise ArtifactError(f"{self._store.path(self._name)} cannot be read: {_first_line(error)}") from error
        if data is None:
            raise FileNotFoundError(self._name)
        try:
            found = _open(pa.BufferReader(data))
            found.read()
        except (pa.ArrowException, OSError) as error:
            raise Damaged(_first_line(error)) from error
        return found


def _open(source: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(source, pre_buffer=True, page_checksum_verification=True)


def _fits(schema: pa.Schema, field: pa.Field) -> bool:
    place = schema.get_field_index(field.name)
    if place < 0:
        return field.nullable and field.name not in ("relevant", "error")
    return bool(schema.field(place).type == field.type)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
