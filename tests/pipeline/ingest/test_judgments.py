"""The stage `ingest_judgments`: which query and document a judgment is about, its grade and split, and every reject."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.base.errors import InputError, TooManyRejects
from darklode.pipeline.ingest.judgments import INGEST_JUDGMENTS, ingest_judgments
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import CHUNKS, RAW_QUERIES
from helpers.ingesting import write
from helpers.runs import documents, execute, put, read

QUERIES = [
    ("default", "1", "usb hub"),
    ("default", "2", "Red  cable "),
    ("default", "3", "usb hub"),
    ("b", "1", "lamp"),
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(str(tmp_path / "run"))
    tenants, ids, texts = zip(*QUERIES, strict=True)
    columns = {"tenant": list(tenants), "query_id": list(ids), "text": list(texts), "count": [1] * len(ids)}
    put(run, "raw_queries", RAW_QUERIES.rows(columns))
    put(run, "documents", documents(tenant=["default"] * 3 + ["b"], doc_id=["d1", "d2", "d3", "d1"], text=["x"] * 4))
    chunk = {"tenant": "default", "chunk_id": "d1-0", "doc_id": "d1", "position": 0, "start": 0, "end": 1}
    put(run, "chunks", pa.Table.from_pylist([chunk | {"text": "x", "content_hash": "h"}], schema=CHUNKS.schema))
    return run


def ingested(run: Run, path: Path, **settings: Any) -> Manifest:
    chosen = IngestSettings.model_validate({"max_reject_share": 1} | settings)
    return execute(
        run, INGEST_JUDGMENTS, lambda tables, output: ingest_judgments(tables, output, chosen, path=str(path))
    )


def rows(run: Run) -> list[tuple[object, ...]]:
    names = ("tenant", "query_id", "item_id", "level", "relevance", "split")
    return [tuple(row[name] for name in names) for row in read(run, "judgments")]


def test_two_gradings_of_the_same_pairs_in_one_folder_are_named(run: Run, tmp_path: Path) -> None:
    for name, grade in (("test", 1), ("graded", 2)):
        write(tmp_path / "beir" / "qrels" / f"{name}.tsv", f"query-id\tcorpus-id\tscore\n1\td1\t{grade}\n2\td2\t1\n")
    message = r"2 of 4 judgments .*:2; give one of the files \(qrels/graded.tsv, qrels/test.tsv\)"
    with pytest.raises(TooManyRejects, match=message):
        ingested(run, tmp_path / "beir", max_reject_share=0.2)


def test_documents_and_chunks_by_id_queries_by_id_or_text(run: Run, tmp_path: Path) -> None:
    data = "query,docid,rating,tenant\nUSB hub,d2,3,\nred cable,d1-0,1.0,\n2,d2,-1,\n1,d1,2,b\n"
    step = ingested(run, write(tmp_path / "ratings.csv", data)).funnel[0]
    assert rows(run) == [
        ("b", "1", "d1", "document", 2, None),
        ("default", "1", "d2", "document", 3, None),
        ("default", "2", "d1-0", "chunk", 1, None),
        ("default", "2", "d2", "document", 0, None),
    ]
    assert (step.rows_in, step.rows_out, step.dropped) == (4, 4, {})


def test_a_beir_folder_names_the_splits_by_file(run: Run, tmp_path: Path) -> None:
    head = "query-id\tcorpus-id\tscore\n"
    write(tmp_path / "beir" / "corpus.jsonl", "")
    write(tmp_path / "beir" / "qrels" / "train.tsv", f"{head}1\td1\t1\n2\td1\t1\n")
    write(tmp_path / "beir" / "qrels" / "dev.tsv", f"{head}3\td1\t1\n")
    write(tmp_path / "beir" / "qrels" / "test.tsv", f"{head}2\td2\t1\n")
    ingested(run, tmp_path / "beir")
    assert [(row[1], row[2], row[5]) for row in rows(run)] == [
        ("1", "d1", "train"),
        ("2", "d1", "test"),
        ("2", "d2", "test"),
        ("3", "d1", "validation"),
    ], "the most held-out split of a query wins"


def test_every_unusable_row_is_a_reject_with_line_and_reason(run: Run, tmp_path: Path) -> None:
    data = (
        "query_id,doc_id,relevance,split\n1,d1,1,train\n1,d1,1,train\n9,d1,1,\n1,d9,1,\n1,d2,x,\n2,d1,0,\n2,d1,2,\n"
        ",d1,1,\n1,,1,\n1,d3,1,later\n"
    )
    step = ingested(run, write(tmp_path / "judgments.csv", data)).funnel[0]
    assert [(row["line"], row["reason"]) for row in sorted(read(run, "rejects"), key=lambda row: str(row["line"]))] == [
        (10, "no document"),
        (11, "unknown split"),
        (3, "judgment repeated"),
        (4, "unknown query"),
        (5, "unknown document"),
        (6, "relevance is not a whole number"),
        (7, "contradictory judgments"),
        (8, "contradictory judgments"),
        (9, "no query"),
    ]
    assert rows(run) == [("default", "1", "d1", "document", 1, "train")]
    assert step.rows_in == 10


def test_a_wrong_file_fails(run: Run, tmp_path: Path) -> None:
    with pytest.raises(TooManyRejects, match="unknown query: 2"):
        ingested(run, write(tmp_path / "q.txt", "7 0 d1 1\n8 0 d1 1\n"), max_reject_share=0.2)
    write(tmp_path / "folder" / "page.html", "<p>")
    folder = write(tmp_path / "folder" / "logo.png", "png").parent
    with pytest.raises(InputError, match="contains no judgments"):
        ingested(run, folder)
