"""Ratings as Quepid imports them."""

import csv
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.export.formats import export
from helpers.finished_run import CHUNK_IDS, finished_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return finished_run(str(tmp_path / "run"), ("t",))


def test_quepid_reads_a_header_and_a_row_per_line(run: Run, tmp_path: Path) -> None:
    files = export(run, "quepid", tmp_path / "out", options={"level": "chunk"})
    assert [file.name for file in files] == ["ratings.test.csv", "ratings.train.csv", "ratings.validation.csv"]
    lines = (tmp_path / "out" / "ratings.train.csv").read_text(encoding="utf-8").split("\n")[:-1]
    assert lines[0] == "query,docid,rating"
    rows = list(csv.DictReader(lines))
    assert len(rows) == len(lines) - 1 == 8
    assert {row["query"] for row in rows} == {"reset the key", 'say "hello"'}
    assert {row["docid"] for row in rows} == set(CHUNK_IDS)
