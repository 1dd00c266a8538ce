"""Encodings by content hash: each text once, in the order asked for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import ArtifactError, DarklodeError
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.retrieve.encoders import encoding_store
from darklode.pipeline.retrieve.encoders.caching import HashedTexts
from darklode.pipeline.retrieve.encoders.encoding_store import EncodingStore
from helpers.hash_encoder import content_hash

ROWS = RowKind("lengths", "encoder", ("content_hash",), pa.schema([pa.field("length", pa.int32())]))


class Lengths:
    """Encodes a text as its length, and notes the texts; fails at one that says so."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: list[str]) -> pa.Table:
        if "fail" in texts:
            raise DarklodeError("out of memory")
        self.calls.append(texts)
        return pa.table({"length": pa.array([len(text) for text in texts], pa.int32())})


def hashed(*texts: str) -> HashedTexts:
    return pa.array([content_hash(text) for text in texts], pa.string()), pa.array(texts, pa.string())


def store_of(folder: Path, encode: Lengths, owner: str = "lengths") -> EncodingStore:
    return EncodingStore(KeyedStore(str(folder), ROWS), owner, encode, lambda: 2)


def test_each_distinct_text_is_encoded_once_longest_first_and_returned_in_order(tmp_path: Path) -> None:
    encode = Lengths()
    ours = store_of(tmp_path, encode)
    assert ours.encodings(hashed("a", "ccc", "a", "bb"))["length"].to_pylist() == [1, 3, 1, 2]
    assert encode.calls == [["ccc", "bb"], ["a"]]
    again = store_of(tmp_path, encode).encodings(hashed("bb", "dddd", "ccc"))
    assert again["length"].to_pylist() == [2, 4, 3]
    assert encode.calls[2:] == [["dddd"]]
    assert ours.encodings(hashed()).num_rows == 0
    store_of(tmp_path, encode, "other").encodings(hashed("a"))
    assert encode.calls[3:] == [["a"]], "another owner has its own"


def test_encodings_before_a_failure_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_store, "STORE_SECONDS", 0.0)
    encode = Lengths()
    with pytest.raises(DarklodeError, match="out of memory"):
        store_of(tmp_path, encode).encodings(hashed("longest text", "longer text", "fail", "x"))
    store_of(tmp_path, encode).encodings(hashed("longest text", "longer text", "x"))
    assert encode.calls == [["longest text", "longer text"], ["x"]]


def test_encodings_that_vanish_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyedStore, "append", lambda *_: None)
    with pytest.raises(ArtifactError, match="pruned while they were in use"):
        store_of(tmp_path, Lengths()).encodings(hashed("a"))
