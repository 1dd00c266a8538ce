"""Documents from JSON lines, CSV, Parquet and BEIR."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.errors import InputError
from helpers.ingesting import documents_of, lines, write


def test_tsv_and_gzip(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "a.tsv.gz", gzip.compress(b"docid\tcontents\n1\tx, y\n"))
    write(docs / "b.jsonl.gz", gzip.compress(b'{"docid": 2, "contents": "z"}\n'))
    write(docs / "notes.pdf", b"%PDF")
    got = documents_of(docs, tmp_path / "run")
    assert [(row["doc_id"], row["text"]) for row in got.rows] == [("1", "x, y"), ("2", "z")]
    assert [(row["file"], row["reason"]) for row in got.rejects] == [("notes.pdf", "not a document format")]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["d.csv", "d.jsonl"])
def test_byte_order_marks(tmp_path: Path, name: str, encoding: str) -> None:
    text = "id,text\n1,Straße\n" if name == "d.csv" else lines({"id": 1, "text": "Straße"})
    (row,) = documents_of(write(tmp_path / name, text.encode(encoding)), tmp_path / "run").rows
    assert (row["doc_id"], row["text"]) == ("1", "Straße")


def test_damaged_files_are_errors(tmp_path: Path) -> None:
    rows = lines(*({"id": n, "text": f"word {n * n}"} for n in range(5000)))
    cut = write(tmp_path / "d.jsonl.gz", gzip.compress(rows.encode())[:-100])
    with pytest.raises(InputError, match="a damaged gzip file"):
        documents_of(cut, tmp_path / "run")
    with pytest.raises(InputError, match="not a valid Parquet file"):
        documents_of(write(tmp_path / "d.parquet", b"PAR1 no"), tmp_path / "run")
    with pytest.raises(InputError, match="UTF-16"):
        documents_of(write(tmp_path / "d.csv", b"\xff\xfei\0d"), tmp_path / "run")
    with pytest.raises(InputError, match="header"):
        documents_of(write(tmp_path / "e.csv", b"id,te\xffxt\n1,a"), tmp_path / "run")


@pytest.mark.parametrize("packed", [False, True])
def test_a_beir_folder(tmp_path: Path, packed: bool) -> None:
    corpus = lines({"_id": "1", "title": "T", "text": "a", "metadata": {}}).encode()
    beir = tmp_path / "beir"
    write(beir / ("corpus.jsonl.gz" if packed else "corpus.jsonl"), gzip.compress(corpus) if packed else corpus)
    write(beir / "queries.jsonl", lines({"_id": "q", "text": "query"}))
    write(beir / "README.md", "about")
    got = documents_of(beir, tmp_path / "run")
    assert [(row["doc_id"], row["title"]) for row in got.rows] == [("1", "T")]
    assert got.rejects == []


def test_a_format_can_be_forced(tmp_path: Path) -> None:
    write(tmp_path / "in" / "part-0", lines({"id": 1, "text": "a"}))
    write(tmp_path / "in" / "readme.md", "about")
    forced: dict[str, Any] = {"documents": {"format": "jsonl"}}
    (row,) = documents_of(tmp_path / "in" / "part-0", tmp_path / "run", **forced).rows
    assert row["doc_id"] == "1"
    with pytest.raises(InputError, match=r"has no corpus\.jsonl"):
        documents_of(tmp_path / "in", tmp_path / "run", documents={"format": "beir"})
    got = documents_of(tmp_path / "in", tmp_path / "run", documents={"format": "folder"})
    assert [row["doc_id"] for row in got.rows] == ["readme.md"]


@pytest.mark.parametrize("content", ["", "id,text\n", "\n\n", "id,text\n1,\n2,\n"])
def test_nothing_to_read_is_an_error(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"d\.csv.*check"):
        documents_of(write(tmp_path / "d.csv", content), tmp_path / "run")
