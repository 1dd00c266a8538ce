"""What a file is, whatever it is called, is found by its first bytes and said with the way to convert it."""

import shlex
import subprocess
from pathlib import Path

import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.input_check import check_documents, check_queries
from darklode.pipeline.ingest.readers.sniff import recoding
from darklode.schemas.settings import IngestSettings
from helpers.ingesting import hide_office, queries_of, write

PLAIN = IngestSettings()


@pytest.fixture(autouse=True)
def _no_office(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_office(monkeypatch)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("q.xlsx", b"PK\x03\x04", "soffice --headless --convert-to csv q.xlsx"),
        ("q.csv", b"PK\x03\x04 and more", r"q\.csv is a workbook.*convert-to csv q.csv"),
        ("my queries.pdf", b"%PDF-1.7", "pdftotext 'my queries.pdf' .*pip install \"darklode\\[office\\]\""),
        ("q.jsonl", b"%PDF-1.7", "is a PDF; make text of it"),
        ("q.docx", b"PK\x03\x04", "pandoc -o q.docx.md q.docx"),
        ("q.txt", b"PAR1", "Parquet: rename it to .parquet"),
        ("q.csv", b"\x1f\x8b\x08\x00", r"gzip: rename it to \.gz"),
        ("q.csv", "text,id\nhow,1\n".encode("utf-16-le"), "UTF-16LE without a byte order mark; iconv -f UTF-16LE"),
        ("q.txt", "how to\n".encode("utf-16-be"), "UTF-16BE without"),
        ("q.csv", "Text,Stra\xdfe\nhow,1\n".encode("latin-1"), "not UTF-8 in its header; if it is Latin-1: iconv"),
        (
            "q.csv",
            "text\nna\xefve caf\xe9\n".encode("latin-1"),
            r"such as q\.csv:2\); if it is Latin-1: iconv",
        ),
    ],
)
def test_it_is_refused_with_how_to_convert_it(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    file = write(tmp_path / name, content)
    for reading in (lambda: check_queries(str(file), PLAIN), lambda: queries_of(file, tmp_path / "run")):
        with pytest.raises(InputError, match=said):
            reading()


def test_the_command_makes_utf8_of_it(tmp_path: Path) -> None:
    write(tmp_path / "my log.csv", "text\nnaïve\n".encode("latin-1"))
    subprocess.run(recoding("my log.csv", "WINDOWS-1252"), shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "my log.utf8.csv").read_text(encoding="utf-8") == "text\nnaïve\n"
    assert shlex.split(recoding("a;b.csv", "UTF-16LE"))[-1] == "a;b.utf8.csv"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text;id\nhow; to,1\n", "separated by semicolons"),
        ("id\ttext\n1\thow, to\n", "separated by tabs"),
        ("text|id\nhow|1\n", "separated by bars"),
        ("text,id\nhow;x,1\n", ""),
        ("text\nhow; to\n", ""),
        ("text;id\nhow;1\n".encode("utf-16"), "encoded as UTF-16"),
    ],
)
def test_delimiters_and_utf16_are_found_and_said(tmp_path: Path, content: str | bytes, said: str) -> None:
    file = write(tmp_path / "q.csv", content)
    assert any(said in note for note in check_queries(str(file), PLAIN)) == bool(said)
    (row,) = queries_of(file, tmp_path / "run").rows
    assert row["text"].startswith("how")


def test_a_column_that_the_settings_name_decides_the_delimiter(tmp_path: Path) -> None:
    file = write(tmp_path / "q.csv", "text,count;frage\na;how to\n")
    (row,) = queries_of(file, tmp_path / "run", queries={"columns": {"text": "frage"}}).rows
    assert row["text"] == "how to"


def test_a_header_that_fits_nothing_is_shown_in_its_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "q.csv", "anfrage;suchwort\nx;y\n")
    with pytest.raises(InputError, match=r"it has anfrage, suchwort; set --set ingest\.queries\.columns\.text=NAME$"):
        check_queries(str(file), PLAIN)


def test_what_lies_beside_documents_and_cannot_be_read_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.md", "# A\n\ntext\n")
    for name in ("b.pdf", "c.PDF", "d.docx", "e.png"):
        write(tmp_path / name, b"x")
    notes = check_documents(str(tmp_path), PLAIN)
    assert [note.partition(": ")[2].partition(";")[0] for note in notes] == [
        "2 .pdf files cannot be read",
        "1 .docx file cannot be read",
    ]
