"""Rows on their way in: texts by role, with the file and lines they came from, gathered into parts, each id once."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output
from darklode.schemas.settings import IngestSettings

Mask = NDArray[np.bool_]


def from_file(file: str, columns: dict[str, pa.Array], lines: pa.Array) -> "Block":
    """Rows that all come from one file."""
    return Block(pa.repeat(file, len(lines)), columns, lines)


def joined(blocks: Sequence["Block"]) -> "Block":
    """Blocks with the same roles as one."""
    files, lines = (pa.concat_arrays([getattr(block, name) for block in blocks]) for name in ("files", "lines"))
    columns = {role: pa.concat_arrays([block.columns[role] for block in blocks]) for role in blocks[0].columns}
    return Block(files, columns, lines)


@dataclass(frozen=True)
class Block:
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

    def filter(self, mask: Mask) -> "Block":
        """The rows where the mask is true."""
        kept = pa.array(mask)
        columns = {role: values.filter(kept) for role, values in self.columns.items()}
        return Block(self.files.filter(kept), columns, self.lines.filter(kept))

    def completed(self, settings: IngestSettings) -> "Block":
        """The rows with a tenant each: their own, or the one of the settings, unless every row has to name its own."""
        own = emptied(self.columns.get("tenant", self.nulls()))
        whole = own if settings.require_tenant else pc.fill_null(own, settings.tenant)
        return Block(self.files, self.columns | {"tenant": whole}, self.lines)

    def nulls(self) -> pa.Array:
        """A column of nothing, for a role that the file does not have."""
        return pa.nulls(len(self), pa.string())


class Drops(Protocol):
    """Whoever keeps the rows that are turned away."""

    def drop(self, reason: str, block: Block) -> None: ...


def weed(block: Block, faults: Sequence[tuple[str, Mask]], drops: Drops) -> Block:
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


def emptied(values: pa.Array) -> pa.Array:
    """The texts without white space around them; null where nothing is left."""
    trimmed = pc.utf8_trim_whitespace(values)
    return pc.if_else(pc.fill_null(pc.equal(trimmed, ""), True), pa.scalar(None, pa.string()), trimmed)


def common_faults(block: Block, key: str, settings: IngestSettings, role: str = "text") -> list[tuple[str, Mask]]:
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


Keys = NDArray[np.uint64]
LEAST_BYTES = 1 << 20
MOST_BYTES = 8 << 20
BOUNDARY = 256


class Parts:
    """Writes a table's rows as parts of at most about 8 MB of text."""

    def __init__(self, output: Output, table: str) -> None:
        self._output = output
        self._table = table
        self._waiting: list[pa.Table] = []
        self._held = 0
        self.rows = 0

    def add(self, rows: pa.Table, ends: Mask) -> None:
        """Add rows. Past one megabyte of text a part also ends after a row where `ends` is true.

        Whether a row ends a part hangs on its id alone, so a document that changes leaves all other parts as they are.
        """
        self.rows += rows.num_rows
        sizes = pc.binary_length(rows["text"]).to_numpy()
        while rows.num_rows:
            held = self._held + np.cumsum(sizes)
            full = np.flatnonzero((held >= MOST_BYTES) | (ends & (held >= LEAST_BYTES)))
            taken = int(full[0]) + 1 if len(full) else rows.num_rows
            self._waiting.append(rows.slice(0, taken))
            self._held = int(held[taken - 1])
            if len(full):
                self.close()
            rows, ends, sizes = rows.slice(taken), ends[taken:], sizes[taken:]

    def close(self) -> None:
        """Write what is waiting."""
        if self._waiting:
            self._output.write(self._table, pa.concat_tables(self._waiting))
        self._waiting, self._held = [], 0


class Seen:
    """The ids seen so far, as 64-bit hashes in 8 bytes each: two of ten million agree in one of 370,000 runs."""

    def __init__(self) -> None:
        self._keys: Keys = np.empty(0, np.uint64)

    def repeated(self, keys: Keys) -> Mask:
        """Where a key was seen before, here or in an earlier call."""
        distinct, first = np.unique(keys, return_index=True)
        at = np.searchsorted(self._keys, distinct)
        known = np.zeros(len(distinct), dtype=bool)
        inside = at < len(self._keys)
        known[inside] = self._keys[at[inside]] == distinct[inside]
        self._keys = np.insert(self._keys, at[~known], distinct[~known])
        repeated = np.ones(len(keys), dtype=bool)
        repeated[first[~known]] = False
        return repeated


def keys_of(tenants: Sequence[str], ids: Sequence[str]) -> Keys:
    """A 64-bit hash of each row's tenant and id."""
    pairs = zip(tenants, ids, strict=True)
    hashes = b"".join(hashlib.sha256(f"{tenant}\0{name}".encode()).digest()[-8:] for tenant, name in pairs)
    return np.frombuffer(hashes, np.uint64)
