"""Files of tables that hold what was written, known by their stamps once they were read."""

import json
import os
import shutil
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.artifacts.integrity import IntegrityCheck
from darklode.pipeline.base.errors import ArtifactError
from helpers.runs import put
from helpers.staged import STAGE, UNITS, build, qrels


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the parts that were read whole."""
    read, names = Store.read, list[str]()

    def noticed(self: Store, name: str) -> bytes | None:
        names.extend([name] * name.endswith(".parquet"))
        return read(self, name)

    monkeypatch.setattr(Store, "read", noticed)
    return names


def flip(run: Run, file: str, place: int = 100) -> None:
    """Change one bit of a file where it lies, as a disk does; size and modification time stay."""
    path = Path(run.store.path(file))
    times, data = path.stat(), bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_part_is_read_once_and_then_known_by_its_stamp(run: Run, reads: list[str]) -> None:
    build(run.store.url)
    parts = run.parts()
    reads.clear()
    assert [run.plan(STAGE, {}).is_up_to_date, Run(run.store.url).plan(STAGE, {}).is_up_to_date] == [True, True]
    assert sorted(reads) == sorted(part.file for table in parts for part in parts[table])
    reads.clear()
    assert run.tables("qrels").read("qrels").num_rows == run.tables().sql("FROM qrels").num_rows == 40
    assert reads == []


@pytest.mark.parametrize("planned_before", [False, True])
def test_a_flipped_bit_is_a_reason_to_redo_and_nothing_reads_it(run: Run, planned_before: bool) -> None:
    build(run.store.url)
    assert not planned_before or run.plan(STAGE, {}).is_up_to_date
    file = run.parts()["qrels"][3].file
    flip(run, file)
    assert Run(run.store.url).plan(STAGE, {}).reason == f"{file} is missing or damaged"
    tables = run.tables("qrels")
    for read in (
        lambda: tables.read("qrels"),
        lambda: tables.sql("FROM qrels"),
        lambda: list(tables.batches("qrels")),
        lambda: tables.part(tables.parts("qrels")[0]),
        lambda: tables.footer(tables.parts("qrels")[0]),
    ):
        with pytest.raises(ArtifactError, match=rf"{file} is missing or damaged; run the command that wrote it again"):
            read()
    assert build(run.store.url) == ["u1"]
    assert Run(run.store.url).plan(STAGE, {}).is_up_to_date


def test_units_that_stand_are_taken_by_their_stamps_and_a_flipped_bit_is_still_found(
    run: Run, reads: list[str]
) -> None:
    build(run.store.url)
    run.tables("qrels").read("qrels")
    files = [part.file for part in run.parts()["qrels"]]
    reads.clear()
    assert build(run.store.url, {**UNITS, "u4": "another basis"}) == ["u4"]
    assert not set(reads) & set(files[:8])
    flip(run, files[2])
    assert build(run.store.url, {**UNITS, "u4": "a third basis"}) == ["u1", "u4"]


def test_a_copy_is_read_anew(run: Run, tmp_path: Path, reads: list[str]) -> None:
    put(run, "qrels", qrels("q"))
    assert run.tables("qrels").read("qrels").num_rows == 3
    copied = Run(str(shutil.copytree(run.store.url, tmp_path / "copy")))
    reads.clear()
    assert IntegrityCheck(copied.store).find_damaged("qrels", copied.parts()["qrels"]) == []
    assert len(reads) == 1


def test_where_stamps_cannot_be_kept_files_are_read_each_time(run: Run, reads: list[str]) -> None:
    put(run, "qrels", qrels("q"))
    (Path(run.store.url) / "verified").write_text("in the way")
    reads.clear()
    assert [run.tables("qrels").read("qrels").num_rows for _ in range(2)] == [3, 3]
    assert len(reads) == 2


@pytest.mark.parametrize("stamps", [b"", b"[1]", b"{", b"null"])
def test_stamps_that_cannot_be_read_are_none(run: Run, stamps: bytes) -> None:
    put(run, "qrels", qrels("q"))
    run.store.write("verified/qrels.json", stamps)
    assert run.tables("qrels").read("qrels").num_rows == 3
    assert len(json.loads(run.store.read("verified/qrels.json") or b"")) == 1


def test_stamps_of_files_that_are_gone_are_dropped(run: Run) -> None:
    for query in ("a", "b"):
        put(run, "qrels", qrels(query))
        run.tables("qrels").read("qrels")
    stamped = json.loads(run.store.read("verified/qrels.json") or b"")
    assert list(stamped) == [run.parts()["qrels"][0].file]
