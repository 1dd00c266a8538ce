"""Blocks of input rows with file and line, checks that all tables share, and buffers for writing them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Output
from darklode.pipeline.base.types import Keys, Mask
from darklode.schemas.settings import IngestSettings


def from_file(file: str, columns: dict[str, pa.Array], lines: pa.Array) -> "RowBlock":
    """A block of rows of one file."""
    return RowBlock(pa.repeat(file, len(lines)), columns, lines)


def concat_blocks(blocks: Sequence["RowBlock"]) -> "RowBlock":
    """Concatenate blocks with the same roles."""
    files = pa.concat_arrays([block.files for block in blocks])
    lines = pa.concat_arrays([block.lines for block in blocks])
    columns = {role: pa.concat_arrays([block.columns[role] for block in blocks]) for role in blocks[0].columns}
    return RowBlock(files, columns, lines)


@dataclass(frozen=True)
class RowBlock:
    """A block of input rows.

    Attributes:
        files: file of each row, relative to the source.
        columns: texts by role (doc_id, text, …), without roles that the file does not have. Timestamps of Parquet
            events keep their type.
        lines: first line of each row, from 1 (in Parquet, the row number); null for a file that is one row.
    """

    files: pa.Array
    columns: dict[str, pa.Array]
    lines: pa.Array

    def __len__(self) -> int:
        return len(self.lines)

    def filter(self, mask: Mask) -> "RowBlock":
        """The rows where the mask is true."""
        arrow_mask = pa.array(mask)
        columns = {role: values.filter(arrow_mask) for role, values in self.columns.items()}
        return RowBlock(self.files.filter(arrow_mask), columns, self.lines.filter(arrow_mask))

    def complete(self, settings: IngestSettings) -> "RowBlock":
        """Fill missing tenants with the tenant of the settings, unless `require_tenant` is set."""
        row_tenants = blank_to_null(self.columns.get("tenant", self.nulls()))
        tenants = row_tenants if settings.require_tenant else pc.fill_null(row_tenants, settings.tenant)
        return RowBlock(self.files, self.columns | {"tenant": tenants}, self.lines)

    def nulls(self) -> pa.Array:
        """A column of nulls, for a role that the file does not have."""
        return pa.nulls(len(self), pa.string())


class DropSink(Protocol):
    """Receives rejected rows."""

    def drop(self, reason: str, block: RowBlock) -> None: ...


def drop_faulty(block: RowBlock, faults: Sequence[tuple[str, Mask]], drops: DropSink) -> RowBlock:
    """Reject the rows that have a fault; returns the other rows.

    Args:
        block: rows to check.
        faults: reject reasons, each with a mask of the rows it applies to. A row is rejected once, with the first one.
        drops: receives the rejected rows.
    """
    is_valid = np.ones(len(block), dtype=bool)
    for reason, fault_mask in faults:
        is_rejected = fault_mask & is_valid
        if is_rejected.any():
            drops.drop(reason, block.filter(is_rejected))
            is_valid &= ~is_rejected
    return block if is_valid.all() else block.filter(is_valid)


def mask(values: pa.Array) -> Mask:
    """A Boolean column as a NumPy mask; null becomes false."""
    flags: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return flags


def is_blank(values: pa.Array) -> Mask:
    """Mask of texts that are null, empty or only white space."""
    return ~mask(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(values)), 0))


def blank_to_null(values: pa.Array) -> pa.Array:
    """Trim texts; empty ones become null."""
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.if_else(pc.fill_null(pc.equal(trimmed, ""), True), pa.scalar(None, pa.string()), trimmed)


def common_faults(block: RowBlock, key: str, settings: IngestSettings, role: str = "text") -> list[tuple[str, Mask]]:
    """Faults that are checked for every table: NUL byte, too long, no tenant, no id, no text.

    Args:
        block: rows to check.
        key: role of the row id, such as `doc_id`; not checked if the block has no such column.
        settings: the settings `ingest`: maximum row length, and whether a tenant is required.
        role: role of the text.

    Returns:
        Reject reasons, each with a mask of the rows it applies to.
    """
    text = block.columns[role]
    texts = [values for values in block.columns.values() if not pa.types.is_timestamp(values.type)]
    nul_masks = [mask(pc.match_substring(values, "\0")) for values in texts]
    faults = [
        ("NUL byte", np.logical_or.reduce(nul_masks)),
        (
            f"row longer than {settings.max_row_bytes} bytes",
            mask(pc.greater(pc.binary_length(text), settings.max_row_bytes)),
        ),
    ]
    if settings.require_tenant:
        faults.append(("missing tenant", is_blank(block.columns.get("tenant", block.nulls()))))
    if key in block.columns:
        faults.append(("missing id", is_blank(block.columns[key])))
    return [*faults, (f"empty {role}", is_blank(text))]


MIN_PART_BYTES = 1 << 20  # bytes of text after which a part may end
MAX_PART_BYTES = 8 << 20  # bytes of text after which a part always ends
PART_END_MODULUS = 256  # a part may end after one row of 256 on average, chosen by the hash of its id


class PartBuffer:
    """Writes a table's rows as parts of at most about 8 MB of text."""

    def __init__(self, output: Output, table: str) -> None:
        self._output = output
        self._table = table
        self._buffer: list[pa.Table] = []
        self._n_buffered = 0
        self.rows = 0

    def add(self, rows: pa.Table, ends: Mask) -> None:
        """Add rows. After one megabyte of text, a part ends at the next row where `ends` is true.

        `ends` depends on a row's id alone (content-defined chunking): a changed document changes its own part only.
        """
        self.rows += rows.num_rows
        sizes = pc.binary_length(rows["text"]).to_numpy()
        while rows.num_rows:
            n_buffered = self._n_buffered + np.cumsum(sizes)
            part_ends = np.flatnonzero((n_buffered >= MAX_PART_BYTES) | (ends & (n_buffered >= MIN_PART_BYTES)))
            n_added = int(part_ends[0]) + 1 if len(part_ends) else rows.num_rows
            self._buffer.append(rows.slice(0, n_added))
            self._n_buffered = int(n_buffered[n_added - 1])
            if len(part_ends):
                self.close()
            rows = rows.slice(n_added)
            ends = ends[n_added:]
            sizes = sizes[n_added:]

    def close(self) -> None:
        """Write the buffered rows."""
        if self._buffer:
            self._output.write(self._table, pa.concat_tables(self._buffer))
        self._buffer = []
        self._n_buffered = 0


class SeenKeys:
    """Ids seen so far, as 64-bit hashes: with ten million ids, two collide in one of 370,000 runs."""

    def __init__(self) -> None:
        self._keys: Keys = np.empty(0, np.uint64)

    def find_repeated(self, keys: Keys) -> Mask:
        """Mask of keys that occurred before, in this or an earlier call."""
        distinct, first_rows = np.unique(keys, return_index=True)
        positions = np.searchsorted(self._keys, distinct)  # the stored keys are sorted
        is_known = np.zeros(len(distinct), dtype=bool)
        in_range = positions < len(self._keys)
        is_known[in_range] = self._keys[positions[in_range]] == distinct[in_range]
        self._keys = np.insert(self._keys, positions[~is_known], distinct[~is_known])
        is_repeated = np.ones(len(keys), dtype=bool)
        is_repeated[first_rows[~is_known]] = False
        return is_repeated


def keys_of(tenants: Sequence[str], ids: Sequence[str]) -> Keys:
    """64-bit hash of each row's tenant and id."""
    pairs = zip(tenants, ids, strict=True)
    hashes = b"".join(hashlib.sha256(f"{tenant}\0{row_id}".encode()).digest()[-8:] for tenant, row_id in pairs)
    return np.frombuffer(hashes, np.uint64)
