"""Opening, searching and exporting runs from Python."""

from pathlib import Path

import pytest

import darklode
from helpers.commands import SampleRun

pytestmark = pytest.mark.server


def test_hits_of_two_systems_are_rows(sample_run: SampleRun) -> None:
    hits = darklode.search(sample_run.folder, "reset password", retriever=["bm25", "ppmi"], tenant="default")
    assert hits.columns == ["system", "rank", "text_id", "doc_id", "title", "heading", "text", "score"]
    assert {(row["system"], row["rank"]) for row in hits} >= {("bm25", 1), ("ppmi", 1)}
    with pytest.raises(darklode.DarklodeError, match="the query is empty"):
        darklode.search(sample_run.folder, " ")


def test_an_export_returns_its_files(sample_run: SampleRun, tmp_path: Path) -> None:
    files = darklode.export(darklode.open(sample_run.folder), "beir", tmp_path / "beir")
    assert {file.name for file in files} >= {"corpus.jsonl", "queries.jsonl", "test.tsv"}
    assert all(file.exists() for file in files)
