"""Paths with patterns."""

from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.files import choose_documents, list_files
from darklode.pipeline.ingest.logs import local_files
from darklode.pipeline.ingest.patterns import split_pattern
from helpers.ingesting import folder

pytest_plugins = ["helpers.s3_bucket"]

NAMES = ["a.csv", "b.csv", "b.csv.bak", "2026-03-01/a.csv", "2026-03-01/deep/c.csv", "2026-03-02/a.jsonl"]


@pytest.mark.parametrize(
    ("pattern", "root", "matches"),
    [
        ("logs/*.csv", "logs", NAMES[:2]),
        ("logs/[a-z].csv", "logs", NAMES[:2]),
        ("logs/[!a].csv", "logs", NAMES[1:2]),
        ("logs/[!a-z].csv", "logs", []),
        ("logs/2026-03-01[!x]a.csv", "logs", []),
        ("logs/[z-a].csv", "logs", []),
        ("logs/?.csv", "logs", NAMES[:2]),
        ("logs/**/*.csv", "logs", [NAMES[0], NAMES[1], NAMES[3], NAMES[4]]),
        ("logs/2026-*", "logs", NAMES[3:]),
        ("logs/2026-*/", "logs", NAMES[3:]),
        ("logs/2026-*/*.csv", "logs", NAMES[3:4]),
        ("*.csv", ".", NAMES[:2]),
        ("/*.csv", "/", NAMES[:2]),
        ("s3://bucket/logs/*.csv", "s3://bucket/logs", NAMES[:2]),
    ],
)
def test_names_that_match(pattern: str, root: str, matches: list[str]) -> None:
    split = split_pattern(pattern)
    assert split is not None
    assert split[0] == root
    assert [name for name in NAMES if split[1].fullmatch(name)] == matches


@pytest.mark.parametrize("path", ["logs", "/a/b.csv", "s3://bucket/prefix", ""])
def test_other_paths(path: str) -> None:
    assert split_pattern(path) is None


def test_files_are_listed_by_pattern(tmp_path: Path) -> None:
    files = folder(tmp_path / "data", dict.fromkeys(NAMES, "text\nx\n"))
    assert [file.name for file in list_files(f"{files}/*.csv")] == NAMES[:2]
    assert [file.name for file in choose_documents(f"{files}/2026-*", "auto").files] == sorted(NAMES[3:])
    with pytest.raises(InputError, match=r"\*\.parquet matches no file"):
        list_files(f"{files}/*.parquet")
    with pytest.raises(InputError, match="none does not exist"):
        list_files(f"{files}/none/*.csv")


def test_a_name_with_the_characters_of_a_pattern_is_a_name(tmp_path: Path) -> None:
    files = folder(tmp_path, {"a[1].csv": "text\nx\n"})
    assert [file.name for file in list_files(f"{files}/a[1].csv")] == ["a[1].csv"]


@pytest.mark.server
def test_objects_are_listed_and_copied_by_pattern(bucket: str) -> None:
    for name in NAMES:
        Store(bucket).write(name, name.encode())
    path = f"{bucket}/2026-*/*.csv"
    files = list_files(path, remote=True)
    assert [file.name for file in files] == ["2026-03-01/a.csv"]
    with local_files(path, files) as copies:
        assert [copy.path.read_text() for copy in copies] == ["2026-03-01/a.csv"]
