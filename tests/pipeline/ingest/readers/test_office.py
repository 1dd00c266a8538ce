"""PDF, DOCX and XLSX files as the extra `office` reads them."""

import io
import re
import zipfile
from datetime import datetime
from pathlib import Path

import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.judgments import judgment_files
from darklode.pipeline.ingest.readers import office
from darklode.pipeline.ingest.readers.markup import BadDocumentError
from darklode.pipeline.ingest.readers.office import read_office
from helpers.ingesting import documents_of, hide_office, queries_of, write

pypdf = pytest.importorskip("pypdf")
docx = pytest.importorskip("docx")
openpyxl = pytest.importorskip("openpyxl")


def pdf(*pages: str, title: str = "", password: str = "", character_map: bytes = b"") -> bytes:
    """A PDF with a line of text on each page; the map names the characters of its font."""
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = pypdf.PdfWriter()
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    fonts = DictionaryObject(
        {NameObject("/F"): DictionaryObject({NameObject(key): NameObject(value) for key, value in font.items()})}
    )
    if character_map:
        stream = DecodedStreamObject()
        stream.set_data(character_map)
        fonts["/F"][NameObject("/ToUnicode")] = writer._add_object(stream)  # type: ignore[index]
    for text in pages:
        page = writer.add_blank_page(300, 300)
        content = DecodedStreamObject()
        content.set_data(f"BT /F 12 Tf 20 200 Td ({text}) Tj ET".encode() if text else b"")
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        page[NameObject("/Contents")] = writer._add_object(content)
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def word(title: str = "") -> bytes:
    document = docx.Document()
    document.core_properties.title = title
    document.add_heading("Returns", 0)
    document.add_paragraph("Send it\nback.")
    document.add_heading("Costs", 2)
    table = document.add_table(2, 2)
    for cell, text in zip((cell for row in table.rows for cell in row.cells), ("Size", "Price", "S", "3"), strict=True):
        cell.text = text
    document.add_paragraph("  ")
    document.add_paragraph("After the table.")
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def workbook(path: Path, *sheets: list[list[object]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for rows in sheets:
        sheet = book.create_sheet()
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_pages_of_a_pdf_are_below_their_numbers() -> None:
    prose = read_office(pdf("Reset the router.", "", "Billing starts.", title=" Manual "), "pdf")
    assert prose.title == "Manual"
    assert prose.text == "## Page 1\n\nReset the router.\n\n## Page 3\n\nBilling starts."
    assert read_office(pdf("Text"), "pdf").title is None


def test_a_pdf_whose_font_names_half_a_character(tmp_path: Path) -> None:
    data = pdf("AB", character_map=b"1 beginbfchar\n<41> <D800>\nendbfchar")
    assert read_office(data, "pdf").text.encode() == "## Page 1\n\n\N{REPLACEMENT CHARACTER}B".encode()


def test_a_word_file_keeps_headings_and_tables_in_order() -> None:
    prose = read_office(word(), "docx")
    assert prose.title == "Returns"
    assert prose.text == "# Returns\n\nSend it\nback.\n\n## Costs\n\nSize | Price\nS | 3\n\nAfter the table."
    assert read_office(word("Own title"), "docx").title == "Own title"


@pytest.mark.parametrize(
    ("data", "kind", "reason"),
    [
        (b"%PDF-1.7", "pdf", "damaged PDF file"),
        (pdf("Text")[:200], "pdf", "damaged PDF file"),
        (pdf(""), "pdf", "PDF without text; scanned pages need OCR"),
        (pdf("Text", password="hunter2"), "pdf", "PDF with a password"),
        (b"PK\x03\x04", "docx", "damaged DOCX file"),
    ],
)
def test_what_cannot_be_read_has_a_reason(data: bytes, kind: str, reason: str) -> None:
    with pytest.raises(BadDocumentError, match=reason):
        read_office(data, kind)


def test_a_file_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * (3 << 20))
    monkeypatch.setattr(office, "MAX_UNPACKED_BYTES", 2 << 20)
    assert len(file.getvalue()) < 1 << 20
    with pytest.raises(BadDocumentError, match="unpacks to more than 2 MiB"):
        read_office(file.getvalue(), "docx")
    write(tmp_path / "q.xlsx", file.getvalue())
    with pytest.raises(InputError, match="not a valid workbook"):
        queries_of(tmp_path / "q.xlsx", tmp_path / "run")


def test_a_folder_of_office_files_with_its_rejects(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "manual.pdf", pdf("Reset the router."))
    write(docs / "letter.docx", word())
    write(docs / "broken.pdf", b"%PDF-1.7")
    write(docs / "note.md", "# Note\n\ntext\n")
    got = documents_of(docs, tmp_path / "run")
    assert [(row["doc_id"], row["title"]) for row in got.rows] == [
        ("letter.docx", "Returns"),
        ("manual.pdf", None),
        ("note.md", "Note"),
    ]
    assert got.rows[1]["text"] == "## Page 1\n\nReset the router."
    assert [(row["file"], row["reason"].partition(" (")[0]) for row in got.rejects] == [
        ("broken.pdf", "damaged PDF file")
    ]


def test_a_pdf_beside_tables_describes_them(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "manual.pdf", pdf("About the tables."))
    write(docs / "rows.csv", "doc_id,text\na,x\n")
    got = documents_of(docs, tmp_path / "run")
    assert [row["doc_id"] for row in got.rows] == ["a"]
    assert [row["file"] for row in got.rejects] == ["manual.pdf"]


def test_a_workbook_is_a_table(tmp_path: Path) -> None:
    rows = [[], ["qid", None, "Query", "count", "timestamp"], [7.0, "x", "how to reset", 3, datetime(2026, 3, 1, 10)]]
    book = workbook(tmp_path / "q.xlsx", [*rows, [None] * 5, ["b", None, 404]], [["other"], ["sheet"]])
    got = queries_of(book, tmp_path / "run")
    assert [(row["query_id"], row["text"], row["count"]) for row in got.rows] == [
        ("7", "how to reset", 3),
        ("b", "404", 1),
    ]
    assert got.rows[0]["timestamp"].isoformat() == "2026-03-01T10:00:00+00:00"
    docs = workbook(tmp_path / "docs.xlsx", [["id", "body"], ["a", "text"], ["b", None]])
    read = documents_of(docs, tmp_path / "docs-run", max_reject_share=1)
    assert [row["doc_id"] for row in read.rows] == ["a"]
    assert [(row["line"]) for row in read.rejects] == [3]
    assert [file.name for file in judgment_files(str(docs))] == ["docs.xlsx"]


def change_sheet(source: Path, target: Path, pattern: bytes, replacement: bytes) -> Path:
    """A workbook whose first sheet is changed."""
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            after.writestr(name, re.sub(pattern, replacement, content) if name.endswith("sheet1.xml") else content)
    return target


def test_a_workbook_with_a_wrong_size_is_read_to_its_end(tmp_path: Path) -> None:
    book = workbook(tmp_path / "right.xlsx", [["qid", "query"], ["a", "reset"], ["b", "billing"]])
    wrong = change_sheet(book, tmp_path / "wrong.xlsx", rb'<dimension ref="[^"]*"', b'<dimension ref="A1:B2"')
    assert [row["text"] for row in queries_of(wrong, tmp_path / "run").rows] == ["reset", "billing"]


def test_a_workbook_whose_sheet_is_cut_off_is_damaged(tmp_path: Path) -> None:
    book = workbook(tmp_path / "whole.xlsx", [["qid", "query"], ["a", "reset"]])
    cut = change_sheet(book, tmp_path / "cut.xlsx", rb"</row></sheetData>.*", b"")
    with pytest.raises(InputError, match=r"cut\.xlsx is not a valid workbook \(ParseError\)"):
        queries_of(cut, tmp_path / "run")


def test_a_workbook_without_rows_or_columns(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains no queries"):
        queries_of(workbook(tmp_path / "empty.xlsx", []), tmp_path / "run")
    with pytest.raises(InputError, match="has no column for the text"):
        queries_of(workbook(tmp_path / "odd.xlsx", [["a"], ["b"]]), tmp_path / "run")


def test_without_the_extra_the_message_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_office(monkeypatch)
    write(tmp_path / "docs" / "manual.pdf", pdf("text"))
    with pytest.raises(
        InputError, match=r'pdftotext manual\.pdf .*; or install its reader: pip install "darklode\[office\]"'
    ):
        documents_of(tmp_path / "docs", tmp_path / "run")
