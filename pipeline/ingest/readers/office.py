"""Read PDF and Word files as documents and Excel workbooks as tables, with the extra `office`."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from itertools import islice
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.errors import DamagedFile
from darklode.pipeline.ingest.columns import ColumnMapping
from darklode.pipeline.ingest.files import InputFile
from darklode.pipeline.ingest.readers.markup import BadDocumentError, Prose
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, from_file

BLOCK_ROWS = 4096
MAX_UNPACKED_BYTES = 1 << 29
"""Maximum size of a Word file or workbook without compression: a small file may unpack to any size."""


def read_office(data: bytes, kind: str) -> Prose:
    """Parse a `pdf` or `docx` file; each page of a PDF is below a heading with its number.

    Raises:
        BadDocumentError: it is damaged, needs a password, or has no text.
    """
    try:
        prose = _READERS[kind](data)
    except BadDocumentError:
        raise
    except Exception as error:  # the libraries raise whatever a damaged file leads to
        raise BadDocumentError(f"damaged {kind.upper()} file ({type(error).__name__})") from error
    return Prose(_valid_text(prose.title) if prose.title else None, _valid_text(prose.text), prose.head)


def _valid_text(text: str) -> str:
    """Text without lone surrogates, which the fonts of some PDFs name as characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_pdf(data: bytes) -> Prose:
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise BadDocumentError("PDF with a password")
    pages = [page.extract_text().strip() for page in reader.pages]
    if not any(pages):
        raise BadDocumentError("PDF without text; scanned pages need OCR")
    text = "\n\n".join(f"## Page {number}\n\n{page}" for number, page in enumerate(pages, 1) if page)
    title = reader.metadata.title if reader.metadata else None
    return Prose(title.strip() or None if isinstance(title, str) else None, text, {})


def _read_docx(data: bytes) -> Prose:
    from docx import Document
    from docx.table import Table

    _check_size(io.BytesIO(data))
    document = Document(io.BytesIO(data))
    blocks = [
        _table_text(block) if isinstance(block, Table) else _paragraph_text(block.text, block.style)
        for block in document.iter_inner_content()
    ]
    text = "\n\n".join(block for block in blocks if block)
    if not text:
        raise BadDocumentError("DOCX without text")
    first = next((block[2:] for block in blocks if block.startswith("# ")), None)
    return Prose(document.core_properties.title.strip() or first, text, {})


_READERS: Mapping[str, Callable[[bytes], Prose]] = {"pdf": _read_pdf, "docx": _read_docx}


def _paragraph_text(text: str, style: Any) -> str:
    """A paragraph as Markdown: headings keep their level."""
    name = (style.name if style is not None else "") or ""
    level = 1 if name == "Title" else int(name[8:]) if name.startswith("Heading ") and name[8:].isdecimal() else 0
    line = text.strip()
    return f"{'#' * min(level, 6)} {' '.join(line.split())}" if level and line else line


def _table_text(table: Any) -> str:
    """A table with a line per row; a cell that spans several columns is written once."""
    rows = []
    for row in table.rows:
        cells = {id(cell._tc): " ".join(cell.text.split()) for cell in row.cells}
        rows.append(" | ".join(cells.values()))
    return "\n".join(row for row in rows if row.strip(" |"))


def _check_size(file: Any) -> None:
    """Check that a ZIP file does not unpack to more than `MAX_UNPACKED_BYTES`."""
    with zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > MAX_UNPACKED_BYTES:
            raise BadDocumentError(f"unpacks to more than {MAX_UNPACKED_BYTES >> 20} MiB")


def read_xlsx(file: InputFile, columns: ColumnMapping, intake: Intake) -> Iterator[RowBlock]:
    """Read the first sheet of a workbook; its first row that is not empty has the names of the columns.

    Formulas count with the value that was saved with them; lines are rows of the sheet.

    Raises:
        InputError: the file is damaged, or a column is missing.
    """
    import openpyxl

    try:
        _check_size(file.path)
        book = openpyxl.load_workbook(file.path, read_only=True, data_only=True)
    except Exception as error:
        raise DamagedFile(f"{file.path} is not a valid workbook ({type(error).__name__}); save it again") from error
    try:
        if len(book.worksheets) > 1:
            intake.add_remark(f"{file.path}: only the first of {len(book.worksheets)} sheets is read")
        numbered = enumerate(_sheet_rows(file, book.worksheets[0]), 1)
        rows = ((line, row) for line, row in numbered if any(value is not None for value in row))
        header = next(rows, None)
        if header is None:
            return
        names = ["" if value is None else str(value).strip() for value in header[1]]
        columns_by_role = columns.find(str(file.path), [name for name in names if name])
        while block := list(islice(rows, BLOCK_ROWS)):
            intake.count_rows(len(block))
            yield _make_block(file, block, {role: names.index(name) for role, name in columns_by_role.items()})
    finally:
        book.close()


def _sheet_rows(file: InputFile, sheet: Any) -> Iterator[Sequence[Any]]:
    """All rows of a sheet; raises DamagedFile."""
    sheet.reset_dimensions()  # some programs write a size that is too small, beyond which openpyxl would not read
    try:
        yield from sheet.iter_rows(values_only=True)
    except Exception as error:  # errors of the XML parser and of openpyxl
        raise DamagedFile(f"{file.path} is not a valid workbook ({type(error).__name__}); save it again") from error


def _make_block(file: InputFile, rows: Sequence[tuple[int, Sequence[Any]]], positions: Mapping[str, int]) -> RowBlock:
    texts = {
        role: pa.array([_cell_text(row[at]) if at < len(row) else None for _, row in rows], pa.string())
        for role, at in positions.items()
    }
    return from_file(file.name, texts, pa.array([line for line, _ in rows], pa.int64()))


def _cell_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):  # a datetime, too
        return value.isoformat()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
