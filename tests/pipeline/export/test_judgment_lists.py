"""Judgments for search tools: documented schemas, grades by document, and read again by `--qrels`."""

import csv
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export.formats import export
from darklode.pipeline.ingest.judgments import INGEST_JUDGMENTS, ingest_judgments
from darklode.schemas.settings import IngestSettings
from helpers.finished_run import QUERY_IDS, SPLITS, TENANTS, finished_run
from helpers.runs import execute, put, read, written

FORMATS = ("quepid", "search-relevance", "elastic-ranking-evaluation")
TENANT = TENANTS[0]


@pytest.fixture
def finished(tmp_path: Path) -> Run:
    return finished_run(str(tmp_path / "run"), (TENANT,))


def read_again(run: Run, folder: Path, root: Path) -> set[tuple[object, ...]]:
    """What `--qrels FOLDER` reads of an export, into a run with the same documents and queries."""
    target = Run(str(root))
    for table in ("raw_queries", "chunks"):
        put(target, table, run.tables(table).read(table))
    documents = {document_of(str(row["chunk_id"])) for row in read(run, "chunks")}
    written(target, "documents", [{"tenant": TENANT, "doc_id": document} for document in sorted(documents)])
    settings = IngestSettings(tenant=TENANT, max_reject_share=0)
    execute(
        target, INGEST_JUDGMENTS, lambda tables, output: ingest_judgments(tables, output, settings, path=str(folder))
    )
    names = ("query_id", "item_id", "level", "relevance", "split")
    return {tuple(row[name] for name in names) for row in read(target, "judgments")}


def document_of(chunk: str) -> str:
    return chunk.split("#", maxsplit=1)[0]


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_exported_is_read_again_at_both_levels(name: str, finished: Run, tmp_path: Path) -> None:
    splits = dict(zip(QUERY_IDS, SPLITS, strict=True))
    labels = [(str(row["query_id"]), str(row["chunk_id"]), row["relevance"]) for row in read(finished, "qrels")]
    export(finished, name, tmp_path / "chunks", options={"level": "chunk"})
    expected = {(query, chunk, "chunk", grade, splits[query]) for query, chunk, grade in labels}
    assert read_again(finished, tmp_path / "chunks", tmp_path / "a") == expected
    export(finished, name, tmp_path / "documents")
    expected = {
        (query, document_of(chunk), "document", grade, splits[query]) for query, chunk, grade in labels
    }  # a chunk is a document of its own here
    assert read_again(finished, tmp_path / "documents", tmp_path / "b") == expected


def graded(tmp_path: Path, grades: dict[str, int | None]) -> list[dict[str, str]]:
    """Quepid's ratings of the documents of a run with the chunks a0, a1, b0 and b1."""
    run = Run(str(tmp_path / "run"))
    key = {"tenant": "t", "query_id": "q"}
    written(run, "chunks", [{"tenant": "t", "chunk_id": f"{d}{n}", "doc_id": d} for d in "ab" for n in "01"])
    written(run, "queries", [key | {"text": "a query", "split": "test"}])
    written(run, "qrels", [key | {"chunk_id": chunk, "relevance": grade} for chunk, grade in grades.items()])
    export(run, "quepid", tmp_path / "out")
    with (tmp_path / "out" / "ratings.test.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        ({"a0": 1, "a1": 3, "b0": 0, "b1": 0}, {"a": "3", "b": "0"}),
        ({"a0": 1, "a1": None, "b0": 0, "b1": None}, {"a": "1"}),  # an uncertain chunk is not a 0
        ({"a0": 2, "b0": 0}, {"a": "2"}),  # neither is one that nobody judged
    ],
)
def test_a_document_has_its_best_chunks_grade_and_0_only_if_every_chunk_has(
    tmp_path: Path, grades: dict[str, int | None], expected: dict[str, str]
) -> None:
    assert {row["docid"]: row["rating"] for row in graded(tmp_path, grades)} == expected


@pytest.mark.parametrize("name", FORMATS)
def test_labels_of_the_test_split_are_withheld(name: str, finished: Run, tmp_path: Path) -> None:
    export(finished, name, tmp_path / "public", tmp_path / "kept")
    assert {path.name.split(".")[1] for path in (tmp_path / "public").iterdir()} == {"train", "validation"}
    assert {path.name.split(".")[1] for path in (tmp_path / "kept").iterdir()} == {"test"}


@pytest.mark.parametrize("name", FORMATS)
def test_several_tenants_unknown_levels_and_other_options_are_errors(name: str, tmp_path: Path) -> None:
    run = finished_run(str(tmp_path / "run"))
    with pytest.raises(ExportError, match=r"has 2 tenants \(acme, b/i rch\); export one with --tenant"):
        export(run, name, tmp_path / "out")
    with pytest.raises(ExportError, match="unknown level 'page'; use document or chunk"):
        export(run, name, tmp_path / "out", tenant=TENANT, options={"level": "page"})
    with pytest.raises(ExportError, match="beir has no option --level; it belongs to elastic-ranking-evaluation, "):
        export(run, "beir", tmp_path / "out", options={"level": "chunk"})
    assert not (tmp_path / "out").exists()
