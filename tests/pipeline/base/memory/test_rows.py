"""Kinds of rows and their parts: keys of several hashes, which row stands, and what is no part."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory import rows as module
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.parts import Damaged
from darklode.pipeline.base.memory.rows import OpenPart, RowKind, encode
from helpers.hash_encoder import content_hash

VALUES = pa.schema([pa.field("said", pa.string()), pa.field("error", pa.string()), pa.field("n", pa.int64())])
KIND = RowKind("answers", "judge", ("query_hash", "chunk_hash"), VALUES, answer="said")
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
GOOD, BAD = "said", None


def row(query: int, chunk: int, said: str | None = "x", second: int = 0, **given: Any) -> dict[str, Any]:
    hashes = {"query_hash": content_hash(f"q{query}"), "chunk_hash": content_hash(f"c{chunk}")}
    error = None if said else "no label"
    return hashes | {"written_at": BEGIN + timedelta(seconds=second), "said": said, "error": error, "n": query} | given


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), KIND.schema)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def opened(store: Store, data: bytes, kind: RowKind = KIND) -> OpenPart:
    store.write("part", data)
    return OpenPart(store, "part", kind, "me")


def test_keys_hang_on_every_hash_and_their_order() -> None:
    found = KIND.keys(table(row(1, 2), row(2, 1), row(1, 1), row(1, 2)))
    assert len(np.unique(found, axis=0)) == 3
    assert found[0].tolist() == found[3].tolist()
    swapped = table(row(1, 2)).rename_columns(["chunk_hash", "query_hash", *KIND.schema.names[2:]])
    assert KIND.keys(swapped).tolist() != found[:1].tolist()
    single = RowKind("plans", "planner", ("query_hash",), VALUES)
    np.testing.assert_array_equal(single.keys(table(row(1, 2))), keys_of([content_hash("q1")]))


@pytest.mark.parametrize(
    ("said", "stands"),
    [
        ([(BAD, 0), (GOOD, 1)], 1),
        ([(GOOD, 5), (GOOD, 1)], 1),
        ([(BAD, 1), (BAD, 5)], 1),
        ([(GOOD, 9), (BAD, 1)], 0),
        ([(GOOD, 1), (GOOD, 1)], 0),
        ([(BAD, 1), (BAD, 1)], 0),
    ],
    ids=["answer", "earliest answer", "latest failure", "late answer", "equal answers", "equal failures"],
)
def test_of_rows_under_one_key_one_stands(said: list[tuple[str | None, int]], stands: int) -> None:
    rows = table(*(row(1, 1, text, second) for text, second in said))
    assert KIND.select_current(np.zeros(2, np.int64), rows).tolist() == [stands]


def test_groups_are_told_apart_and_keep_their_order() -> None:
    rows = table(row(1, 1, BAD), row(2, 1, second=3), row(1, 1, second=9), row(2, 1, second=1))
    assert KIND.select_current(np.array([4, 7, 4, 7]), rows).tolist() == [2, 3]


def test_without_an_answer_no_row_fails_and_the_earliest_stands() -> None:
    spent = RowKind("spending", "account", ("query_hash",), VALUES)
    rows = table(row(1, 1, BAD, 3), row(1, 1, BAD, 1))
    assert spent.select_current(np.zeros(2, np.int64), rows).tolist() == [1]
    assert (spent.attempt, spent.is_silent(rows)) == ((), False)
    assert KIND.is_silent(table(row(1, 1, BAD, error=None)))
    assert not KIND.is_silent(table(row(1, 1, BAD), row(1, 1)))


def test_rows_are_read_in_any_order_over_groups(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GROUP_ROWS", 4)
    part = opened(store, encode(table(*(row(number, 0) for number in range(11))), KIND, "me"))
    assert part.read(["n"], np.array([10, 0, 5, 5, 3]))["n"].to_pylist() == [10, 0, 5, 5, 3]
    assert part.read(["n"])["n"].to_pylist() == list(range(11))
    assert len(part.keys()) == 11
    assert part.read(["said", "n"], np.array([], np.int64)).num_rows == 0


def test_a_column_that_came_later_is_null_and_one_that_is_gone_is_left_out(store: Store) -> None:
    before = RowKind("answers", "judge", KIND.key, VALUES.remove(2).append(pa.field("old", pa.int8())), answer="said")
    rows = pa.Table.from_pylist([row(1, 1) | {"old": 3}], before.schema)
    part = opened(store, encode(rows, before, "me"))
    assert part.read(["n", "said"]).to_pylist() == [{"n": None, "said": "x"}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encode(table(row(1, 1)), KIND, "another"), "it does not contain answers of this judge"),
        (b"not Parquet", "."),
        (encode(table(row(1, 1)).drop(["error"]), KIND, "me"), "its columns error are not those of answers"),
        (encode(table(row(1, 1)).drop(["query_hash"]), KIND, "me"), "its columns query_hash"),
        (
            encode(table(row(1, 1)).set_column(5, "n", pa.array(["1"])), KIND, "me"),
            "its columns n are not those of answers",
        ),
    ],
    ids=["another's", "no Parquet", "no errors", "no hash", "another type"],
)
def test_what_is_no_part_of_this_owner_is_damaged(store: Store, data: bytes, message: str) -> None:
    with pytest.raises(Damaged, match=message):
        opened(store, data)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (table(row(1, 1), row(1, 2, query_hash="short")), "'short' is not a content hash"),
        (table(row(1, 1), row(1, 2, BAD, error=None)), "a failed attempt has no error text"),
    ],
    ids=["hash", "silence"],
)
def test_rows_that_cannot_be_are_damage(store: Store, rows: pa.Table, message: str) -> None:
    with pytest.raises(Damaged, match=message):
        opened(store, encode(rows, KIND, "me")).keys()


def test_a_flipped_byte_is_found_by_its_checksum(store: Store) -> None:
    data = bytearray(encode(table(*(row(number, number) for number in range(200))), KIND, "me"))
    data[len(data) // 3] ^= 0xFF
    with pytest.raises(Damaged):
        opened(store, bytes(data)).keys()


def test_a_part_that_was_merged_away_is_gone_and_a_folder_cannot_be_read(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OpenPart(store, "gone", KIND, "me")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ArtifactError, match="folder cannot be read"):
        OpenPart(store, "folder", KIND, "me")
