"""The keyed store: rows by owner and key, shared by runs and machines, so that nothing is computed or paid for twice.

Verdicts, term weights and spending are kinds of rows. The owner is what produced them, such as a judge id; a key is one
or several content hashes (32 hex digits each).

    PLANS = RowKind("plans", "planner", ("query_hash",), pa.schema([...]))
    store = KeyedStore("s3://bucket/cache", PLANS)
    store.append(planner_id, rows)                    # one part, written atomically
    entries = store.open(planner_id)
    found = entries.find(queries)                     # found.rows: rows of queries; found.values: stored values

Parts are ordinary Parquet files. Merging combines small parts into large ones and is safe with concurrent readers,
writers and mergers, and if it is killed: the merged part is complete before its sources are deleted. A reader that sees
both finds duplicate rows, which are resolved; a reader that misses a deleted part refreshes and finds the merged one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import KeyIndex
from darklode.pipeline.base.memory.parts import Damaged, PartFiles, PartIndex
from darklode.pipeline.base.memory.rows import WRITTEN_AT, OpenPart, RowKind, encode
from darklode.pipeline.base.types import Ints

MERGE_PARTS = 256
"""Number of small parts at which merging them pays off."""
LARGE_BYTES = 8 << 20
"""Parts of this size are not merged further: several hundred thousand verdicts without a rationale."""

USAGE_SCHEMA = pa.schema(
    [
        pa.field("owner_id", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("parts", pa.int64()),
        pa.field("damaged", pa.list_(pa.string())),
    ]
)
"""Storage used by an owner: `rows` counts valid rows, `damaged` lists skipped parts with reasons."""


@dataclass(frozen=True)
class LookupResult:
    """Result of a look-up.

    Attributes:
        rows: rows of the key table that were found, ascending, shape (n_found,).
        values: the kind's values, in the order of `rows`.
    """

    rows: Ints
    values: pa.Table


class KeyedStore:
    """Rows of one kind and of all owners; processes and machines may append and merge concurrently.

    Args:
        root: a folder or an s3:// prefix; null: the user's cache folder.
        kind: kind of rows.

    Raises:
        ArtifactError: the root is neither a folder nor an s3:// prefix.
    """

    def __init__(self, root: str | None, kind: RowKind) -> None:
        self.parts, self.kind = PartFiles(root, kind.top, kind.owner, (".parquet",)), kind
        self._registered: set[str] = set()

    def append(self, owner_id: str, rows: pa.Table) -> None:
        """Write rows as a new part, atomically.

        Args:
            owner_id: the owner.
            rows: the columns of the kind's key and values.

        Raises:
            ArtifactError: the part cannot be written.
            ValueError: a column is missing or of another type, a hash is invalid, or a failed attempt has no error
                text.
        """
        if not rows.num_rows:
            return
        timestamps = pa.repeat(pa.scalar(time.time_ns(), WRITTEN_AT.type), rows.num_rows)
        stored_rows = rows.append_column(WRITTEN_AT, timestamps).select(self.kind.schema.names).cast(self.kind.schema)
        self.kind.keys(stored_rows)
        if self.kind.is_silent(stored_rows):
            raise ValueError(f"{owner_id}: a row without {self.kind.answer} needs a text in `error`")
        try:
            if owner_id not in self._registered and not self.has_owner(owner_id):
                self.parts.register(owner_id)
            self._registered.add(owner_id)
            self.parts.write(owner_id, encode(stored_rows, self.kind, owner_id))
        except OSError as error:
            path = self.parts.store.path(self.parts.folder(owner_id))
            raise ArtifactError(f"{rows.num_rows} {self.kind.top} cannot be written to {path}: {error}") from error

    def open(self, owner_id: str) -> Entries:
        """Open the owner's current rows; `Entries.refresh` updates them."""
        entries = Entries(self, owner_id)
        entries.refresh()
        return entries

    def has_owner(self, owner_id: str) -> bool:
        """Whether the owner has rows in the store.

        Raises:
            ArtifactError: its record is damaged.
        """
        return self.parts.record(self.parts.folder(owner_id)) is not None

    def owners(self) -> list[str]:
        """Ids of all owners, sorted."""
        return [str(record[f"{self.kind.owner}_id"]) for record in self.parts.records()]

    def usage(self) -> pa.Table:
        """One row of `USAGE_SCHEMA` per owner, by id."""
        return pa.Table.from_pylist(
            [self.facts(owner_id, self.open(owner_id)) for owner_id in self.owners()], USAGE_SCHEMA
        )

    def facts(self, owner_id: str, entries: Entries) -> dict[str, object]:
        """An owner's row of `USAGE_SCHEMA`."""
        size, parts = sum(self.parts.sizes(owner_id).values()), len(self.parts.names(owner_id))
        return {
            "owner_id": owner_id,
            "rows": len(entries),
            "bytes": size,
            "parts": parts,
            "damaged": entries.damaged_parts,
        }

    def prune(self, owner_ids: Collection[str] | None = None) -> int:
        """Delete rows of some owners, or of all (None); returns the bytes freed."""
        pruned_ids = self.owners() if owner_ids is None else owner_ids
        self._registered.difference_update(pruned_ids)
        return sum(self.parts.prune(owner_id) for owner_id in pruned_ids)

    def merge_small_parts(self, owner_id: str) -> None:
        """Merge the owner's small parts if there are many."""
        if len(self._small(owner_id)) >= MERGE_PARTS:
            self.merge(owner_id)

    def merge(self, owner_id: str) -> int:
        """Merge the owner's small parts; returns by how much the number of parts decreased.

        Of several rows with a key, only the valid one is kept. Damaged parts, and parts with columns of a newer
        version, are left unchanged.
        """
        fewer = 0
        for names in _batches(self._small(owner_id)):
            tables = {name: rows for name in names if (rows := self._rows(name, owner_id)) is not None}
            if len(tables) < 2:
                continue
            rows = pa.concat_tables(tables.values())
            keys = self.kind.keys(rows)
            valid_rows = np.sort(self.kind.select_current(KeyIndex(keys).find(keys), rows))
            merged = rows.take(pa.array(valid_rows)).sort_by([(name, "ascending") for name in self.kind.key])
            self.parts.write(owner_id, encode(merged, self.kind, owner_id))
            for name in tables:
                self.parts.delete(name)
            fewer += len(tables) - 1
        return fewer

    def _small(self, owner_id: str) -> dict[str, int]:
        """Sizes of the owner's small parts, oldest first."""
        sizes = sorted(self.parts.sizes(owner_id).items())
        return {name: size for name, size in sizes if name.endswith(self.parts.endings) and size < LARGE_BYTES}

    def _rows(self, name: str, owner_id: str) -> pa.Table | None:
        """A part's rows; None if it is deleted, damaged, or has columns of a newer version that would be lost."""
        try:
            part = OpenPart(self.parts.store, name, self.kind, owner_id)
            if part.is_newer:
                return None
            part.keys()
            return part.read(self.kind.schema.names)
        except (FileNotFoundError, Damaged):
            return None


def _batches(sizes: dict[str, int]) -> Iterator[list[str]]:
    """Group small parts so that each group makes a large one."""
    names: list[str] = []
    for name in sizes:
        names.append(name)
        if sum(sizes[part_name] for part_name in names) >= LARGE_BYTES:
            yield names
            names = []
    yield names


class Entries:
    """An owner's rows as of the last `refresh`: the index is in memory, rows are read from the parts on demand.

    Parts may be merged or added meanwhile. Memory: 20 bytes per row, about three times that while the index grows.

    Args:
        store: the store.
        owner_id: the owner; parts of others are skipped as damaged.
    """

    def __init__(self, store: KeyedStore, owner_id: str) -> None:
        self._files, self._kind, self._owner_id = store.parts.store, store.kind, owner_id
        path = self._files.path(store.parts.folder(owner_id))
        self._index = PartIndex(lambda: store.parts.names(owner_id), lambda name: self._part(name).keys(), path)

    @property
    def damaged_parts(self) -> list[str]:
        """Skipped damaged parts, with the reason."""
        return [f"{self._files.path(name)}: {reason}" for name, reason in sorted(self._index.damaged.items())]

    def refresh(self) -> None:
        """Add parts written since the last call.

        Raises:
            ArtifactError: parts change faster than they can be read.
        """
        self._index.refresh()

    def find(self, keys: pa.Table) -> LookupResult:
        """Look up the valid rows of some keys.

        Args:
            keys: table with the columns of the kind's key.

        Raises:
            ArtifactError: parts change faster than they can be read.
            ValueError: a hash is not 32 hex digits.
        """
        wanted_keys, values = self._kind.keys(keys), self._kind.values.names

        def look_up() -> LookupResult:
            rows, numbers = self._index.keys.matches(wanted_keys)
            values_found = self._read_rows(numbers, list(dict.fromkeys([*values, *self._kind.rank])))
            valid_rows = self._kind.select_current(rows, values_found)
            return LookupResult(
                rows[valid_rows], values_found.select(values).take(pa.array(valid_rows)).combine_chunks()
            )

        return self._index.retry_on_change(look_up)

    def __len__(self) -> int:
        """Number of valid rows."""
        rows, numbers = self._index.keys.find_duplicates()
        return len(self._index) - len(numbers) + len(np.unique(rows))

    def rows(self, columns: list[str]) -> pa.Table:
        """Columns of all valid rows.

        Raises:
            ArtifactError: parts change faster than they can be read.
        """

        def read() -> pa.Table:
            rows, numbers = self._index.keys.find_duplicates()
            valid_rows = self._kind.select_current(rows, self._read_rows(numbers, self._kind.rank))
            row_numbers = np.delete(np.arange(len(self._index)), np.delete(numbers, valid_rows))
            parts = (self._read(part, columns, rows) for part, _, rows in self._index.by_part(row_numbers))
            return pa.concat_tables([self._kind.empty(columns), *parts])

        return self._index.retry_on_change(read)

    def _part(self, name: str) -> OpenPart:
        return OpenPart(self._files, name, self._kind, self._owner_id)

    def _read(self, part: int, columns: list[str], rows: Ints) -> pa.Table:
        name = self._index.names[part]
        try:
            return self._part(name).read(columns, rows)
        except Damaged as error:
            self._index.damaged[name] = str(error)
            raise

    def _read_rows(self, numbers: Ints, columns: list[str]) -> pa.Table:
        """Read rows by number, in that order."""
        tables, orders = [self._kind.empty(columns)], [np.empty(0, dtype=np.int64)]
        for part, group, rows in self._index.by_part(numbers):
            tables.append(self._read(part, columns, rows))
            orders.append(group)
        return pa.concat_tables(tables).take(pa.array(np.argsort(np.concatenate(orders))))
