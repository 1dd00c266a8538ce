"""Benchmarks over labelled collections, which are not part of the project: without them each says so and ends."""

import importlib
import sys
from pathlib import Path

import pytest

import benchmarks

SCRIPTS = sorted(Path(benchmarks.__path__[0]).glob("*.py"))
WITH_COLLECTIONS = [
    script.stem
    for script in SCRIPTS
    if script.stem != "collections_io"
    and any(words in script.read_text(encoding="utf-8") for words in ('"--collections"', "options(__doc__"))
]


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_COLLECTIONS)
def test_a_missing_collection_is_a_sentence_and_a_skip(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "bm25":
        pytest.importorskip("numba")
    results = Path(benchmarks.__path__[0]) / "results"
    before = {file: file.stat().st_mtime_ns for file in results.iterdir()}
    monkeypatch.setattr(sys, "argv", [name, "--collections", str(tmp_path / "none")])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 0
    assert f"Skipped: {tmp_path / 'none'}" in capsys.readouterr().out
    assert {file: file.stat().st_mtime_ns for file in results.iterdir()} == before, "no result is written"


def test_one_missing_collection_leaves_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.collections_io import present

    (tmp_path / "cisi").mkdir()
    assert present(["cranfield", "cisi"], tmp_path) == ["cisi"]
    assert capsys.readouterr().out == f"Skipped collection cranfield: {tmp_path / 'cranfield'} is missing.\n"
