"""Reuse rows of an owner's earlier version in a keyed store, where they are still valid."""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from darklode.pipeline.base.memory.store import Entries, KeyedStore


class EarlierVersion:
    """The rows of an owner's earlier version.

    Args:
        store: store with the rows of both versions.
        owner_id: id of the current version.
        earlier_id: id of the earlier version.
    """

    def __init__(self, store: KeyedStore, owner_id: str, earlier_id: str) -> None:
        self._store, self._owner_id, self._earlier_id = store, owner_id, earlier_id

    def __bool__(self) -> bool:
        return self._entries is not None

    def hand_down(self, keys: pa.Table) -> bool:
        """Copy the earlier rows with these keys to the owner; returns whether there are any.

        Args:
            keys: table with the columns of the kind's key; the owner has no rows with these keys.

        Raises:
            ArtifactError: rows cannot be read or written.
        """
        if self._entries is None or not keys.num_rows:
            return False
        entries = self._entries.find(keys)
        rows = keys.select(self._store.kind.key).take(pa.array(entries.rows))
        for name in entries.values.column_names:
            rows = rows.append_column(name, entries.values[name])
        self._store.append(self._owner_id, rows)
        return bool(rows.num_rows)

    @cached_property
    def _entries(self) -> Entries | None:
        return self._store.open(self._earlier_id) if self._store.has_owner(self._earlier_id) else None
