"""Content hashes as keys, and looking them up: against Python's own dictionaries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.memory.keys import KeyIndex, first_of_each, from_bytes, hash_of, keys_of, to_bytes
from darklode.pipeline.base.types import Keys
from helpers.hash_encoder import content_hash

NUMBERS = st.lists(st.integers(0, 40), max_size=60)


def keys(numbers: list[int]) -> Keys:
    """Few first halves, so that different keys share them."""
    return np.array([[number % 3, number] for number in numbers], dtype=np.uint64).reshape(-1, 2)


def hashes(*numbers: int) -> list[str]:
    return [content_hash(str(number)) for number in numbers]


def test_keys_are_the_hashes_bytes() -> None:
    names = hashes(*range(50))
    assert to_bytes(keys_of(names)).hex() == "".join(names)
    assert [hash_of(key) for key in keys_of(names)] == names
    raw = np.frombuffer(bytes.fromhex("".join(names)), np.uint8).reshape(-1, 16)
    np.testing.assert_array_equal(from_bytes(raw), keys_of(names))


@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_columns_of_any_form_give_the_same_keys(pieces: int) -> None:
    names = hashes(*range(20))
    column = pa.chunked_array([names[start::pieces] for start in range(pieces)], pa.string())
    sliced = pa.array(["no hash", *names, "no hash"])[1:-1]
    np.testing.assert_array_equal(keys_of(column), keys_of(column.to_pylist()))
    np.testing.assert_array_equal(keys_of(sliced), keys_of(names))
    np.testing.assert_array_equal(keys_of(sliced.cast(pa.large_string())), keys_of(names))
    assert keys_of([]).shape == (0, 2)


@pytest.mark.parametrize("bad", ["", "abc", "0" * 31 + "G", "0" * 31 + "A", "0" * 33, "é" * 16, None])
def test_a_hash_of_another_form_is_refused_by_its_text(bad: str | None) -> None:
    with pytest.raises(ValueError, match=f"{bad!r} is not a content hash"):
        keys_of([content_hash("1"), bad])  # type: ignore[list-item]


@settings(deadline=None)
@given(NUMBERS, st.lists(st.integers(0, 60), max_size=30))
def test_an_index_finds_what_a_dictionary_finds(have: list[int], asked: list[int]) -> None:
    expected = [have.index(number) if number in have else -1 for number in asked]
    assert KeyIndex(keys(have)).find(keys(asked)).tolist() == expected


@settings(deadline=None)
@given(st.lists(NUMBERS, max_size=6), st.lists(st.integers(0, 60), max_size=30))
def test_matches_are_all_places_however_the_list_grew(batches: list[list[int]], asked: list[int]) -> None:
    index, have = KeyIndex(), [number for batch in batches for number in batch]
    for batch in batches:
        index.add(keys(batch))
    assert len(index) == len(have)
    rows, numbers = index.matches(keys(asked))
    expected = [(row, place) for row, number in enumerate(asked) for place, one in enumerate(have) if one == number]
    assert list(zip(rows.tolist(), numbers.tolist(), strict=True)) == expected


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=12))
def test_a_set_lets_every_key_in_once(batches: list[list[int]]) -> None:
    seen, known = KeyIndex(), set()
    for batch in batches:
        expected = []
        for number in batch:
            expected.append(number not in known)
            known.add(number)
        assert seen.add_new(keys(batch)).tolist() == expected


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=6))
def test_an_index_knows_the_keys_that_come_again(batches: list[list[int]]) -> None:
    index, numbers = KeyIndex(), [number for batch in batches for number in batch]
    for batch in batches:
        index.add(keys(batch))
    places = [[place for place, one in enumerate(numbers) if one == number] for number in {*numbers}]
    several = [group for group in places if len(group) > 1]
    which, found = index.find_duplicates()
    groups = np.split(found, np.flatnonzero(np.diff(which)) + 1) if len(found) else []
    assert sorted(group.tolist() for group in groups) == sorted(several)
    assert (np.diff(which) >= 0).all()
    assert index.find(keys_of([])).tolist() == []


@given(NUMBERS)
def test_the_first_of_each(numbers: list[int]) -> None:
    expected = [number not in numbers[:place] for place, number in enumerate(numbers)]
    assert first_of_each(keys(numbers)).tolist() == expected


def test_an_index_numbers_keys_beyond_two_bytes() -> None:
    many = np.arange(140_000, dtype=np.uint64).reshape(-1, 2)
    asked = np.array([0, 65_535, 65_536, 69_999])
    grown = KeyIndex(many[:66_000])
    grown.add(many[66_000:])
    for index in (KeyIndex(many), grown):
        assert index.find(many[asked]).tolist() == asked.tolist()
        assert index.matches(many[asked])[1].tolist() == asked.tolist()
