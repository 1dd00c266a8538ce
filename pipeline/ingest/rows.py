"""Rows on their way in: texts by role, with the file and lines they came from, gathered into parts, each id once."""

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
    """Rows that all come from one file."""
    return RowBlock(pa.repeat(file, len(lines)), columns, lines)


def concat_blocks(blocks: Sequence["RowBlock"]) -> "RowBlock":
    """Blocks with the same roles as one."""
    files, lines = (pa.concat_arrays([getattr(block, name) for block in blocks]) for name in ("files", "lines"))
    columns = {role: pa.concat_arrays([block.columns[role] for block in blocks]) for role in blocks[0].columns}
    return RowBlock(files, columns, lines)


@dataclass(frozen=True)
class RowBlock:
    """Some rows.

    Attributes:
        files: the file of each row, by its name below the folder that was read.
        columns: by role (doc_id, text, …) the row's texts; a role that the file does not have is absent. Of a Parquet
            file of events, times stay times.
        lines: the line on which each row begins, from 1 (the row, in Parquet), null for a file that is one row.
    """

    files: pa.Array
    columns: dict[str, pa.Array]
    lines: pa.Array

    def __len__(self) -> int:
        return len(self.lines)

    def filter(self, mask: Mask) -> "RowBlock":
        """The rows where the mask is true."""
        retained = pa.array(mask)
        columns = {role: values.filter(retained) for role, values in self.columns.items()}
        return RowBlock(self.files.filter(retained), columns, self.lines.filter(retained))

    def complete(self, settings: IngestSettings) -> "RowBlock":
        """The rows with a tenant each: their own, or the one of the settings, unless every row has to name its own."""
        own = blank_to_null(self.columns.get("tenant", self.nulls()))
        tenants = own if settings.require_tenant else pc.fill_null(own, settings.tenant)
        return RowBlock(self.files, self.columns | {"tenant": tenants}, self.lines)

    def nulls(self) -> pa.Array:
        """A column of nothing, for a role that the file does not have."""
        return pa.nulls(len(self), pa.string())


class DropSink(Protocol):
    """Whoever keeps the rows that are turned away."""

    def drop(self, reason: str, block: RowBlock) -> None: ...


def drop_faulty(block: RowBlock, faults: Sequence[tuple[str, Mask]], drops: DropSink) -> RowBlock:
    """Turn away the rows with a fault, each for the first of its reasons."""
    standing = np.ones(len(block), dtype=bool)
    for reason, bad in faults:
        hit = bad & standing
        if hit.any():
            drops.drop(reason, block.filter(hit))
            standing &= ~hit
    return block if standing.all() else block.filter(standing)


def mask(values: pa.Array) -> Mask:
    """A Boolean column as NumPy; null counts as false."""
    flags: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return flags


def blank(values: pa.Array) -> Mask:
    """Where a text is null, empty or only white space."""
    return ~mask(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(values)), 0))


def blank_to_null(values: pa.Array) -> pa.Array:
    """The texts without white space around them; null where nothing is left."""
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.if_else(pc.fill_null(pc.equal(trimmed, ""), True), pa.scalar(None, pa.string()), trimmed)


def common_faults(block: RowBlock, key: str, settings: IngestSettings, role: str = "text") -> list[tuple[str, Mask]]:
    """The faults that a row of any table can have: NUL bytes, too long, no tenant, no id, no text (of this role)."""
    text = block.columns[role]
    texts = [values for values in block.columns.values() if not pa.types.is_timestamp(values.type)]
    nul = [mask(pc.match_substring(values, "\0")) for values in texts]
    faults = [
        ("NUL byte", np.logical_or.reduce(nul)),
        (
            f"row longer than {settings.max_row_bytes} bytes",
            mask(pc.greater(pc.binary_length(text), settings.max_row_bytes)),
        ),
    ]
    if settings.require_tenant:
        faults.append(("names no tenant", blank(block.columns.get("tenant", block.nulls()))))
    if key in block.columns:
        faults.append(("missing id", blank(block.columns[key])))
    return [*faults, (f"empty {role}", blank(text))]


LEAST_BYTES = 1 << 20
MOST_BYTES = 8 << 20
BOUNDARY = 256


class PartBuffer:
    """Writes a table's rows as parts of at most about 8 MB of text."""

    def __init__(self, output: Output, table: str) -> None:
        self._output = output
        self._table = table
        self._waiting: list[pa.Table] = []
        self._n_buffered = 0
        self.rows = 0

    def add(self, rows: pa.Table, ends: Mask) -> None:
        """Add rows. Past one megabyte of text a part also ends after a row where `ends` is true.

        Whether a row ends a part hangs on its id alone, so a document that changes leaves all other parts as they are.
        """
        self.rows += rows.num_rows
        sizes = pc.binary_length(rows["text"]).to_numpy()
        while rows.num_rows:
            n_buffered = self._n_buffered + np.cumsum(sizes)
            full = np.flatnonzero((n_buffered >= MOST_BYTES) | (ends & (n_buffered >= LEAST_BYTES)))
            taken = int(full[0]) + 1 if len(full) else rows.num_rows
            self._waiting.append(rows.slice(0, taken))
            self._n_buffered = int(n_buffered[taken - 1])
            if len(full):
                self.close()
            rows, ends, sizes = rows.slice(taken), ends[taken:], sizes[taken:]

    def close(self) -> None:
        """Write what is waiting."""
        if self._waiting:
            self._output.write(self._table, pa.concat_tables(self._waiting))
        self._waiting, self._n_buffered = [], 0


class SeenKeys:
    """The ids seen so far, as 64-bit hashes in 8 bytes each: two of ten million agree in one of 370,000 runs."""

    def __init__(self) -> None:
        self._keys: Keys = np.empty(0, np.uint64)

    def find_repeated(self, keys: Keys) -> Mask:
        """Where a key was seen before, here or in an earlier call."""
        distinct, first = np.unique(keys, return_index=True)
        at = np.searchsorted(self._keys, distinct)
        is_known = np.zeros(len(distinct), dtype=bool)
        inside = at < len(self._keys)
        is_known[inside] = self._keys[at[inside]] == distinct[inside]
        self._keys = np.insert(self._keys, at[~is_known], distinct[~is_known])
        repeated = np.ones(len(keys), dtype=bool)
        repeated[first[~is_known]] = False
        return repeated


def keys_of(tenants: Sequence[str], ids: Sequence[str]) -> Keys:
    """A 64-bit hash of each row's tenant and id."""
    pairs = zip(tenants, ids, strict=True)
    hashes = b"".join(hashlib.sha256(f"{tenant}\0{name}".encode()).digest()[-8:] for tenant, name in pairs)
    return np.frombuffer(hashes, np.uint64)
