"""Judgments brought to a finished build: which splits and labels training then reads."""

from dataclasses import replace
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.data.judgments import (
    ADAPTATION_JUDGMENTS_STAGE,
    JUDGMENT_TABLES,
    adaptation_judgments,
)
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.settings import IngestSettings
from helpers.adapted import TENANT, build_to_adapt
from helpers.ingesting import write
from helpers.runs import execute, read, written

SIDES = {"train": 4, "validation": 2, "test": 3}
SETTINGS = IngestSettings(tenant=TENANT, max_reject_share=0)
HEADER = "query_id,doc_id,relevance,split\n"


@pytest.fixture
def source(tmp_path: Path) -> TrainingSource:
    run = build_to_adapt(tmp_path / "run", SIDES)
    queries = [{name: row[name] for name in ("tenant", "query_id", "text")} for row in read(run, "queries")]
    written(run, "raw_queries", queries)
    documents = {str(row["doc_id"]) for row in read(run, "chunks")}
    written(run, "documents", [{"tenant": TENANT, "doc_id": document} for document in sorted(documents)])
    return TrainingSource(run, 0, mined=False, text_characters=100)


def judged(source: TrainingSource, rows: str, root: Path) -> TrainingSource:
    """The source with these judgments."""
    path, out = write(root / "judgments.csv", HEADER + rows), Run(str(root / "out"))
    execute(
        out,
        ADAPTATION_JUDGMENTS_STAGE,
        lambda _tables, output: adaptation_judgments([source], output, SETTINGS, path=str(path)),
    )
    return replace(source, judgments=out.tables(*JUDGMENT_TABLES))


def splits(source: TrainingSource) -> dict[str, str]:
    rows = source.queries(TENANT)
    return dict(zip(rows["query_id"].to_pylist(), rows["split"].to_pylist(), strict=True))


def labels(source: TrainingSource, query: str) -> dict[str, tuple[object, ...]]:
    rows = [row for row in source.labels(TENANT).to_pylist() if row["query_id"] == query]
    return {row["text_id"].split("#")[1]: (row["relevance"], row["learned"], row["probability"]) for row in rows}


def test_without_splits_the_runs_stay_and_judgments_replace_its_labels(source: TrainingSource, tmp_path: Path) -> None:
    before = splits(source)
    assert labels(source, "train-001") == {"0": (1, True, pytest.approx(0.9)), "1": (0, False, pytest.approx(0.2))}
    new = judged(source, "train-001,train-001-0,0,\ntrain-001,train-001-2,3,\ntest-001,test-001-1,2,\n", tmp_path)
    assert splits(new) == before
    assert labels(new, "train-001") == {"0": (0, False, 0), "1": (0, False, pytest.approx(0.2)), "2": (3, True, 1)}
    assert labels(new, "test-001")["1"] == (2, True, 1)  # learned only in the train split, see `adaptation_pairs`
    assert labels(new, "train-002") == labels(source, "train-002")
    assert new.content() != source.content()


def test_held_out_queries_are_those_of_the_judgments(source: TrainingSource, tmp_path: Path) -> None:
    rows = "train-001,train-001-0,1,test\ntest-000,test-000-0,1,train\ntest-001,test-001-0,1,test\n"
    new = judged(source, rows, tmp_path)
    kept = {name: split for name, split in splits(source).items() if name != "test-002"}
    assert splits(new) == kept | {"train-001": "test", "test-000": "train"}
    assert labels(new, "train-001")["0"] == (1, True, 1)
    assert labels(new, "train-001")["1"] == (0, False, pytest.approx(0.2))
    assert labels(new, "test-000")["0"] == (1, True, 1)


def test_training_judgments_alone_leave_what_the_run_holds_out(source: TrainingSource, tmp_path: Path) -> None:
    new = judged(source, "test-000,test-000-0,1,train\ntrain-000,train-000-0,1,train\n", tmp_path)
    assert splits(new) == splits(source)


def test_other_chunks_of_a_relevant_document_keep_the_runs_label_or_have_none(
    source: TrainingSource, tmp_path: Path
) -> None:
    chunks = [
        row | {"doc_id": "one"} for row in read(source.run, "chunks") if str(row["chunk_id"]).startswith("train-002")
    ]
    others = [row for row in read(source.run, "chunks") if not str(row["chunk_id"]).startswith("train-002")]
    written(source.run, "chunks", [*chunks, *others])
    written(source.run, "documents", [{"tenant": TENANT, "doc_id": "one"}])
    new = judged(source, "train-002,one,2,\n", tmp_path)
    found = labels(new, "train-002")
    assert sorted(str(relevance) for relevance, _, _ in found.values()) == ["0", "2", "None"]
    assert {learned for relevance, learned, _ in found.values() if relevance != 2} == {False}


def test_several_runs_and_mined_ones_are_errors(source: TrainingSource, tmp_path: Path) -> None:
    path, out = write(tmp_path / "judgments.csv", HEADER), Run(str(tmp_path / "out"))
    for sources in ([source, source], [replace(source, mined=True)]):
        with pytest.raises(ArtifactError, match="--qrels needs one run, made by `darklode build`"):
            execute(
                out,
                ADAPTATION_JUDGMENTS_STAGE,
                lambda _tables, output, sources=sources: adaptation_judgments(
                    sources, output, SETTINGS, path=str(path)
                ),
            )
