"""People's labels: every format, the texts of their documents, and what is turned away."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import InputError, TooManyRejects
from darklode.pipeline.evaluate.pair_labels import MANUAL_LABELS_STAGE, manual_labels
from darklode.schemas.settings import IngestSettings
from helpers.runs import documents, execute, put, read

ROWS = [
    {"query": "reset key", "document": "a.md", "satisfaction": 1, "relevance": True},
    {"query": "reset key", "document": "a text of their own", "satisfaction": 0, "relevance": None},
    {"query": "refund", "document": "b.md", "satisfaction": None, "relevance": False},
]


def read_from(folder: Path, file: Path, **settings: float) -> Run:
    run = Run(str(folder / "run"))
    put(run, "documents", documents(doc_id=["a.md", "b.md"], text=["the first text", "another"], title=["A", None]))
    given = IngestSettings(**settings)
    execute(
        run,
        MANUAL_LABELS_STAGE,
        lambda tables, output: manual_labels(tables, output, given, file=str(file), text_characters=9),
    )
    return run


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_labels_are_the_same_in_every_format(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"labels.{form}"
    if form == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif form == "csv":
        lines = [",".join("" if value is None else str(value) for value in row.values()) for row in ROWS]
        file.write_text("query,document,satisfaction,relevance\n" + "\n".join(lines) + "\n")
    else:
        texts = [{key: None if value is None else str(value) for key, value in row.items()} for row in ROWS]
        pq.write_table(pa.Table.from_pylist(texts), file)
    run = read_from(tmp_path, file)
    found = {(row["query"], row["satisfaction"], row["relevance"], row["text"]) for row in read(run, "manual_labels")}
    assert found == {
        ("reset key", True, True, None),
        ("reset key", False, None, "a text of their own"),
        ("refund", None, False, None),
    }
    shown = {(row["title"], row["text"]) for row in read(run, "manual_texts")}
    assert shown == {("A", "the first"), (None, "another"), (None, "a text of their own")}
    assert {row["text_id"] for row in read(run, "manual_labels")} == {
        row["chunk_id"] for row in read(run, "manual_texts")
    }


def test_bad_rows_are_rejects_with_line_and_reason(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(
        "query,document,satisfaction,relevance\n"
        "good,a.md,1,0\n"
        ",a.md,1,0\n"
        "no document,,1,0\n"
        "unknown,c.md,1,0\n"
        "odd,a.md,maybe,0\n"
        "odd,b.md,1,2\n"
        "silent,a.md,,\n"
        "good,a.md,0,0\n"
    )
    run = read_from(tmp_path, file, max_reject_share=0.9)
    assert sorted((row["line"], row["reason"]) for row in read(run, "rejects")) == [
        (3, "empty query"),
        (4, "no document"),
        (5, "document is neither a known id nor a text"),
        (6, "satisfaction is neither 0 nor 1"),
        (7, "relevance is neither 0 nor 1"),
        (8, "no label"),
        (9, "pair repeated"),
    ]
    (step,) = run.manifests()["manual_labels"].funnel
    assert (step.rows_in, step.rows_out) == (8, 1)
    with pytest.raises(TooManyRejects, match=r"evaluate\.human_labels"):
        read_from(tmp_path / "again", file)


def test_a_file_without_any_label_column_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("query,document,grade\nq,a.md,1\n")
    with pytest.raises(InputError, match="needs a column satisfaction or relevance"):
        read_from(tmp_path, tmp_path / "labels.csv")
