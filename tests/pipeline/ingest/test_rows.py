"""Rows on their way into a table: each id once, in parts that a change elsewhere leaves as they are."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.ingest.rows import RowBlock, SeenKeys, drop_faulty, from_file, keys_of
from helpers.ingesting import documents_of, lines, write


def test_ids_may_repeat_in_other_tenants_only(tmp_path: Path) -> None:
    rows = lines(*({"id": n, "text": f"{n}", "tenant": t} for t in ("a", "b", "a") for n in range(3)))
    got = documents_of(write(tmp_path / "d.jsonl", rows), tmp_path / "run")
    assert [(row["tenant"], row["doc_id"]) for row in got.rows] == [(t, str(n)) for t in "ab" for n in range(3)]
    assert [(row["tenant"], row["represented_by"]) for row in got.rejects] == [("a", "0"), ("a", "1"), ("a", "2")]


def test_a_new_and_a_changed_document_change_their_own_parts_only(tmp_path: Path) -> None:
    rows = [json.dumps({"id": n, "text": f"{n} " + "word " * 1000}) for n in range(4000)]
    path = write(tmp_path / "d.jsonl", "\n".join(rows))
    before = documents_of(path, tmp_path / "run").run.parts()["documents"]
    rows[1500] = json.dumps({"id": 1500, "text": "changed " * 3000})
    rows.insert(0, json.dumps({"id": "new", "text": "word " * 5000}))
    after = documents_of(write(path, "\n".join(rows)), tmp_path / "run").run.parts()["documents"]
    assert len(before) == len(after) >= 5
    assert len({part.sha256 for part in after} - {part.sha256 for part in before}) == 2


def test_an_id_may_come_back_much_later(tmp_path: Path) -> None:
    rows = [json.dumps({"id": n % 1999, "text": f"{n} " + "word " * 500}) for n in range(2000)]
    got = documents_of(write(tmp_path / "d.jsonl", "\n".join(rows)), tmp_path / "run")
    assert (len(got.rows), got.reasons, got.rejects[0]["id"]) == (1999, [("duplicate id", 2000)], "0")


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=6))
def test_an_id_is_new_once_however_the_rows_are_cut(blocks: list[list[int]]) -> None:
    seen, known = SeenKeys(), set[int]()
    for block in blocks:
        for key, repeated in zip(block, seen.find_repeated(np.array(block, np.uint64)), strict=True):
            assert repeated == (key in known)
            known.add(key)


def test_ids_of_two_tenants_are_two() -> None:
    assert len(set(keys_of(["a", "b", "a"], ["x", "x", "y"]).tolist())) == 3
    assert keys_of(["a"], ["x"]).tolist() == keys_of(["a"], ["x"]).tolist()


def test_a_row_goes_for_the_first_of_its_faults() -> None:
    block = from_file("f", {"text": pa.array(["a", "b", "c"])}, pa.array([1, 2, 3]))
    gone: list[tuple[str, list[int]]] = []

    class Noted:
        def drop(self, reason: str, block: RowBlock) -> None:
            gone.append((reason, block.lines.to_pylist()))

    faults = [("one", np.array([True, False, False])), ("two", np.array([True, True, False]))]
    left = drop_faulty(block, faults, Noted())
    assert (left.lines.to_pylist(), gone) == ([3], [("one", [1]), ("two", [2])])
