"""Files of keyed stores: owners and their records, orphans, and an index over parts that come and go."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory import parts
from darklode.pipeline.base.memory.parts import Damaged, PartFiles, PartIndex
from darklode.pipeline.base.types import Keys


@pytest.fixture
def files(tmp_path: Path) -> PartFiles:
    return PartFiles(str(tmp_path), "verdicts", "judge", (".data", ".keys"), "remove it")


def test_a_part_is_a_file_for_each_ending_and_counts_with_the_last(files: PartFiles) -> None:
    files.write("one", b"1234", b"12")
    files.write("one", b"9", b"8")
    names = files.names("one")
    assert [files.store.read(name) for name in names] == [b"12", b"8"], "the oldest first"
    assert sorted(files.sizes("one").values()) == [1, 1, 2, 4]
    assert files.names("other") == []
    with pytest.raises(ValueError, match="zip"):
        files.write("one", b"1")


def test_owners_have_folders_of_their_own_and_records_in_words(files: PartFiles) -> None:
    ids = ["judge b", "judge a/../é"]
    for name in ids:
        files.register(name, dimensions=4)
    assert len({files.folder(name) for name in ids}) == 2
    assert [record["judge_id"] for record in files.records()] == sorted(ids)
    assert files.record(files.folder("judge b")) == {"judge_id": "judge b", "dimensions": 4}
    assert files.record("verdicts/nobody") is None


@pytest.mark.parametrize("said", [b"{", b"[]", b"3", json.dumps({"judge_id": "another"}).encode(), b'{"name": 1}'])
def test_a_damaged_record_is_named_with_its_remedy(files: PartFiles, said: bytes) -> None:
    files.store.write(f"{files.folder('one')}/judge.json", said)
    with pytest.raises(ArtifactError, match=r"judge\.json is damaged \(.*\); remove it"):
        files.records()


def test_all_of_an_owner_is_pruned_and_nothing_of_another(files: PartFiles) -> None:
    for name in ("one", "other"):
        files.register(name)
        files.write(name, b"1234", b"12")
    record = len(files.store.read(f"{files.folder('one')}/judge.json") or b"")
    assert files.prune("one") == 6 + record
    assert [entry["judge_id"] for entry in files.records()] == ["other"]
    assert len(files.names("other")) == 1
    files.delete("verdicts/gone")  # no error


def test_only_old_files_without_a_part_are_orphans(files: PartFiles) -> None:
    files.register("one")
    files.write("one", b"1234", b"12")
    (whole,) = files.names("one")
    both = {whole, whole.replace(".keys", ".data")}
    files.store.write(f"{files.folder('one')}/torn.data", b"123")
    assert files.orphans("one", both) == [f"{files.folder('one')}/torn.data"]
    assert files.prune_orphans("one", both) == 0, "a writer may still be at work"
    assert files.prune_orphans("one", both, timedelta(0)) == 3
    assert files.orphans("one", both) == []
    assert files.names("one") == [whole]


def test_a_local_file_is_where_it_lies_and_a_pruned_one_is_said(files: PartFiles) -> None:
    files.write("one", b"1234", b"12")
    (name,) = files.names("one")
    assert files.fetch(name).read_bytes() == b"12"
    files.delete(name)
    with pytest.raises(ArtifactError, match="was pruned while in use"):
        files.fetch(name)


class Shelf:
    """Parts by name, in memory: their keys, `None` for one that is torn; what is asked for is remembered."""

    def __init__(self, **keys: list[int] | None) -> None:
        self.parts = keys
        self.read: list[str] = []

    def index(self) -> PartIndex:
        return PartIndex(lambda: sorted(self.parts), self._keys, "the shelf")

    def _keys(self, name: str) -> Keys:
        self.read.append(name)
        if name not in self.parts:
            raise FileNotFoundError(name)
        numbers = self.parts[name]
        if numbers is None:
            raise Damaged("torn")
        return keys(*numbers)


def keys(*numbers: int) -> Keys:
    return np.array([[number, 0] for number in numbers], dtype=np.uint64).reshape(-1, 2)


def test_rows_are_numbered_through_all_parts() -> None:
    index = Shelf(a=[7, 8], b=[], c=[9, 7, 5]).index()
    index.refresh()
    assert len(index) == 5
    assert index.keys.find(keys(9, 7, 1)).tolist() == [2, 0, -1]
    part, row = index.locate(np.arange(5))
    assert [(index.names[p], r) for p, r in zip(part.tolist(), row.tolist(), strict=True)] == [
        ("a", 0),
        ("a", 1),
        ("c", 0),
        ("c", 1),
        ("c", 2),
    ]
    grouped = [(index.names[p], which.tolist(), rows.tolist()) for p, which, rows in index.by_part(np.array([4, 0, 2]))]
    assert grouped == [("a", [1], [0]), ("c", [2, 0], [0, 2])]
    assert list(index.by_part(np.array([], np.int64))) == []


def test_what_was_indexed_is_not_read_again_and_torn_parts_are_named() -> None:
    shelf = Shelf(a=[1], b=None)
    index = shelf.index()
    index.refresh()
    assert (len(index), index.damaged) == (1, {"b": "torn"})
    shelf.parts["c"] = [2]
    index.refresh()
    assert shelf.read == ["a", "b", "c"]
    assert index.keys.find(keys(2)).tolist() == [1]


def test_a_part_that_vanishes_between_listing_and_reading_is_looked_for_again() -> None:
    shelf = Shelf(a=[1])
    listed = iter([["a", "merged"], ["a", "whole"]])
    shelf.parts["whole"] = [2, 3]
    index = PartIndex(lambda: next(listed), shelf._keys, "the shelf")
    index.refresh()
    assert index.names == ["a", "whole"]
    assert len(index) == 3


def test_parts_that_never_stand_still_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_RETRIES", 3)
    index = PartIndex(lambda: ["gone"], Shelf()._keys, "the shelf")
    with pytest.raises(ArtifactError, match="parts in the shelf change faster than they can be read"):
        index.refresh()


def test_an_action_starts_over_when_a_part_is_gone() -> None:
    shelf = Shelf(a=[1], b=[2])
    index = shelf.index()
    index.refresh()
    tried = []

    def action() -> list[str]:
        tried.append(list(index.names))
        if len(tried) == 1:
            shelf.parts = {"ab": [1, 2]}
            raise FileNotFoundError("a")
        return index.names

    assert index.retry_on_change(action) == ["ab"]
    assert tried == [["a", "b"], ["ab"]]
    with pytest.raises(ZeroDivisionError):
        index.retry_on_change(lambda: 1 // 0)
