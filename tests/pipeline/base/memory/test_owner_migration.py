"""Rows that an owner's earlier version left."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from darklode.pipeline.base.memory.owner_migration import EarlierVersion
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import KeyedStore
from helpers.hash_encoder import content_hash

PLANS = RowKind(
    "plans", "planner", ("query_hash",), pa.schema([("reply", pa.string()), ("error", pa.string())]), "reply"
)


def rows(*names: str) -> pa.Table:
    hashes = {"query_hash": [content_hash(name) for name in names]}
    return pa.table(hashes | {"reply": list(names), "error": pa.nulls(len(names), pa.string())})


def test_what_the_earlier_version_left_becomes_the_owners(tmp_path: Path) -> None:
    store = KeyedStore(str(tmp_path), PLANS)
    store.append("one", rows("a", "b"))
    heritage = EarlierVersion(store, "two", "one")
    assert heritage
    assert not heritage.hand_down(rows("c"))
    assert not store.has_owner("two")
    assert heritage.hand_down(rows("c", "b"))
    assert store.open("two").find(rows("a", "b", "c")).values["reply"].to_pylist() == ["b"]
    assert len(store.open("one")) == 2


def test_who_has_no_earlier_version_inherits_nothing(tmp_path: Path) -> None:
    store = KeyedStore(str(tmp_path), PLANS)
    heritage = EarlierVersion(store, "two", "one")
    assert not heritage
    assert not heritage.hand_down(rows("a"))
    assert store.owners() == []
