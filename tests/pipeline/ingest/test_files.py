"""Files below a path: their fingerprint, and which of them hold documents or queries."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from darklode.pipeline.ingest.files import (
    MAX_HASHED_BYTES,
    FileChoice,
    InputFile,
    choose_documents,
    choose_queries,
    files_fingerprint,
    list_files,
    source_fingerprint,
)
from darklode.pipeline.ingest.log_partitions import partitions_of
from helpers.ingesting import folder


def rewrite(path: Path, text: str) -> None:
    """Give a file another content of the same size, and its old modification time, as `tar -x` and `rsync -t` do."""
    before = path.stat()
    assert len(text.encode()) == before.st_size
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("length", [5, MAX_HASHED_BYTES, MAX_HASHED_BYTES + 1], ids=["tiny", "small", "large"])
def test_the_fingerprint_follows_content_whatever_size_and_modification_time(tmp_path: Path, length: int) -> None:
    docs = folder(tmp_path, {"a.md": "a" * length, "2026-03-01.csv": "b" * length})
    os.utime(docs / "a.md", (1, 1))

    def fingerprints() -> list[str]:
        marks = [partition.fingerprint for partition in partitions_of(list_files(str(docs)), "auto").values()]
        return [source_fingerprint(str(docs)), source_fingerprint(str(docs / "a.md")), *marks]

    before = fingerprints()
    assert fingerprints() == before
    for name, letter in (("a.md", "x"), ("2026-03-01.csv", "y")):
        rewrite(docs / name, letter * length)
    assert len(before) == 3
    assert all(old != new for old, new in zip(before, fingerprints(), strict=True))


def test_a_copy_of_small_files_has_the_same_fingerprint(tmp_path: Path) -> None:
    files = {"a.md": "a", "b/c.csv": "b"}
    one, other = folder(tmp_path / "one", files), folder(tmp_path / "other", files)
    os.utime(one / "a.md", (1, 1))
    (one / "a.md").chmod(0o600)
    assert source_fingerprint(str(one)) == source_fingerprint(str(other))


def test_a_file_that_cannot_be_opened_is_left_to_whoever_reads_it(tmp_path: Path) -> None:
    files = list_files(str(folder(tmp_path, {"a.md": "a"})))
    before = files_fingerprint(files)
    files[0].path.unlink()
    assert files_fingerprint(files) != before


@pytest.mark.parametrize(
    "choose", [lambda path: choose_documents(path, "auto"), lambda path: choose_queries(path, "auto")]
)
def test_many_files_are_chosen_without_comparing_each_to_each(
    tmp_path: Path, choose: Callable[[str], FileChoice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: `file in list` compares a file with all before it."""
    files = {f"{number}.{ending}": "text" for number in range(200) for ending in ("txt", "png")}
    docs, compared = folder(tmp_path, files), 0

    def count(self: InputFile, other: object) -> bool:
        nonlocal compared
        compared += 1
        return self is other

    monkeypatch.setattr(InputFile, "__eq__", count)
    choice = choose(str(docs))
    assert (len(choice.files), len(choice.other_files), compared) == (200, 200, 0)
