"""Which texts queries are written for."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.generate.source_texts import TEXTS_STAGE, sample_texts
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.tables import TABLES
from helpers.adapted import TENANT, build_to_adapt
from helpers.runs import execute, put, read
from helpers.training_labels import put_training_labels

UNREACHED = 3


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> TrainingSource:
    """A build in which a document of four chunks, two of them alike, answers nobody, and neither do two others."""
    run = build_to_adapt(tmp_path_factory.mktemp("texts") / "run")
    rows = run.tables("chunks").read("chunks").to_pylist()
    more = [
        rows[0] | {"chunk_id": f"new#{number}", "doc_id": "new", "text": text, "content_hash": f"{9:016}{name:016}"}
        for number, (text, name) in enumerate([("one", 1), ("two", 2), ("three", 3), ("three", 3)])
    ]
    found = [row | {"doc_id": "answered"} if row["chunk_id"][-2:] in {"#0", "#1", "#2"} else row for row in rows]
    found = [
        row | {"doc_id": row["chunk_id"]} if row["chunk_id"] in {"test-001#1", "test-001#2"} else row for row in found
    ]
    put(run, "chunks", pa.Table.from_pylist([*found, *more], schema=TABLES["chunks"].schema))
    return TrainingSource(run, 0, mined=False, text_characters=100)


def chosen(folder: Path, source: TrainingSource, most: int, seed: int = 13) -> list[dict[str, object]]:
    run = Run(str(folder))
    execute(run, TEXTS_STAGE, lambda _, output: sample_texts(source, output, max_texts=most, seed=seed))
    return read(run, "generation_texts")


def test_documents_that_no_query_reached_come_first_one_text_of_each(tmp_path: Path, source: TrainingSource) -> None:
    found = chosen(tmp_path, source, 6)
    assert [row["reached"] for row in found] == [False] * 5 + [True]
    assert {row["doc_id"] for row in found[:UNREACHED]} == {"new", "test-001#1", "test-001#2"}
    assert [row["doc_id"] for row in found[UNREACHED:5]] == ["new", "new"], "a copy is not asked for again"


def test_the_run_is_copied_and_counted(tmp_path: Path, source: TrainingSource) -> None:
    chosen(tmp_path, source, 6)
    run = Run(str(tmp_path))
    own = source.run.tables("chunks").read("chunks").sort_by("chunk_id")
    assert run.tables("chunks").read("chunks").equals(own)
    documents = read(run, "generation_documents")
    assert [row["tenant"] for row in documents] == [TENANT] * 4
    assert sum(row["texts"] for row in documents) == own.num_rows  # type: ignore[misc]
    assert [row["reached"] for row in documents].count(True) == 1
    splits = {str(row["split"]) for row in read(run, "real_queries")}
    assert splits == {"train", "validation", "test"}


def test_the_draw_is_the_seeds(tmp_path: Path, source: TrainingSource) -> None:
    each = [
        [row["chunk_id"] for row in chosen(tmp_path / str(n), source, 40, seed)] for n, seed in enumerate((1, 1, 2))
    ]
    assert each[0] == each[1] != each[2]


def test_queries_that_were_generated_before_are_no_user_s(tmp_path: Path) -> None:
    run = build_to_adapt(tmp_path / "run")
    for name in ("queries", "qrels"):
        rows = run.tables(name).read(name).to_pylist()
        made = next(row for row in rows if row["query_id"] == "train-002") | {"query_id": "generated-1"}
        made |= {"chunk_id": "test-001#2"} if name == "qrels" else {}
        put(run, name, pa.Table.from_pylist([*rows, made], schema=TABLES[name].schema))
    put_training_labels(run)
    chosen(tmp_path / "out", TrainingSource(run, 0, mined=False, text_characters=100), 5)
    out = Run(str(tmp_path / "out"))
    assert not [row for row in read(out, "real_queries") if str(row["query_id"]).startswith("generated-")]
    reached = {row["doc_id"]: row["reached"] for row in read(out, "generation_documents")}
    assert (reached["test-001-2"], reached["test-001-0"]) == (False, True)


def test_a_run_without_triplets_is_refused(tmp_path: Path, source: TrainingSource) -> None:
    run = build_to_adapt(tmp_path / "run")
    put(run, "triplets", TABLES["triplets"].empty())
    with pytest.raises(ArtifactError, match="no triplets"):
        chosen(tmp_path / "out", TrainingSource(run, 0, mined=False, text_characters=100), 5)
