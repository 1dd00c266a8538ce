"""Shards of vectors: the files' forms, and reading rows mapped or from the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.parts import PartIndex
from darklode.pipeline.base.memory.shards import (
    KEYS_SUFFIX,
    VECTORS_SUFFIX,
    Dtype,
    Layout,
    MappedVectors,
    Shards,
    decode_keys,
    encode_keys,
    vectors_of,
)
from helpers.hash_encoder import content_hash

ROWS = np.random.default_rng(3).standard_normal((40, 3))


def hashes(*numbers: int) -> list[str]:
    return [content_hash(str(number)) for number in numbers]


def test_keys_come_back_with_the_largest_length() -> None:
    keys = keys_of(hashes(1, 2, 3))
    found, longest = decode_keys(encode_keys(keys, 1.25))
    np.testing.assert_array_equal(found, keys)
    assert longest == 1.25
    assert decode_keys(encode_keys(keys[:0], 0.0))[0].shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "its length is not a multiple of 16"),
        (lambda data: data[:-1], "its length is not a multiple of 16"),
        (lambda data: data[16:], "2 keys, expected 3"),
        (lambda data: data[:-16], "2 keys, expected"),
    ],
    ids=["empty", "cut", "a key less", "no end"],
)
def test_a_torn_keys_file_is_known(change: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"not a keys file: {message}"):
        decode_keys(change(encode_keys(keys_of(hashes(1, 2, 3)), 1.0)))  # type: ignore[operator]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_are_the_same_mapped_and_read(dtype: Dtype, tmp_path: Path) -> None:
    layout = Layout("e", 3, dtype)
    assert layout.row_bytes == 3 * np.dtype(dtype).itemsize
    file = tmp_path / "one.vectors"
    file.write_bytes(ROWS.astype(np.dtype(dtype).newbyteorder("<")).tobytes())
    mapped, rows = MappedVectors(file, layout), np.array([39, 0, 7, 7])
    np.testing.assert_array_equal(mapped.rows[rows], ROWS[rows].astype(dtype))
    np.testing.assert_array_equal(mapped.read(rows), mapped.rows[rows])
    mapped.prefetch(0, 40)
    mapped.release(3, 17)
    mapped.release(5, 5)
    np.testing.assert_array_equal(mapped.rows, ROWS.astype(dtype))


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    """Three shards of 10, 0 and 30 vectors."""
    keys = {}
    for name, first, end in (("a", 0, 10), ("b", 10, 10), ("c", 10, 40)):
        (tmp_path / f"{name}{VECTORS_SUFFIX}").write_bytes(ROWS[first:end].astype("<f4").tobytes())
        keys[f"{name}{KEYS_SUFFIX}"] = keys_of(hashes(*range(first, end)))
    index = PartIndex(lambda: sorted(keys), lambda name: keys[name], str(tmp_path))
    index.refresh()

    def fetch(name: str) -> Path:
        if not (tmp_path / name).exists():
            raise ArtifactError(f"{name} was pruned")
        return tmp_path / name

    return Shards(Layout("e", 3, "float32"), index, fetch, longest=2.0)


@pytest.mark.parametrize("map_them", [True, False])
def test_vectors_come_from_all_shards_in_the_order_asked_for(shards: Shards, map_them: bool) -> None:
    numbers = shards.find(keys_of(hashes(39, 3, 10, 9, 3)))
    np.testing.assert_array_equal(shards.take(numbers, map_them), ROWS[[39, 3, 10, 9, 3]].astype(np.float32))
    assert shards.take(numbers[:0]).shape == (0, 3)
    assert shards.find(keys_of(hashes(40))).tolist() == [-1]
    assert len(shards) == 40


def test_memory_given_back_comes_again(shards: Shards) -> None:
    before = shards.take(np.arange(40))
    shards.release()
    np.testing.assert_array_equal(shards.take(np.arange(40)), before)


def test_a_shard_is_opened_once_and_a_pruned_one_is_said(shards: Shards, tmp_path: Path) -> None:
    assert shards.shard(0) is shards.shard(0)
    (tmp_path / f"c{VECTORS_SUFFIX}").unlink()
    shards.take(np.arange(10))
    with pytest.raises(ArtifactError, match=r"c\.vectors was pruned"):
        shards.take(np.arange(12))


def test_each_keys_file_names_its_vectors() -> None:
    assert vectors_of("x/00-ab.keys") == "x/00-ab.vectors"
