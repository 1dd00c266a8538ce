"""Ingest documents from a folder of Markdown, HTML, text, PDF and DOCX, or from JSON lines, CSV, Parquet or BEIR."""

import hashlib
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Output, Stage
from darklode.pipeline.base.errors import DamagedFile
from darklode.pipeline.base.types import Keys
from darklode.pipeline.ingest.columns import DOCUMENT_COLUMNS, ColumnMapping, document_columns
from darklode.pipeline.ingest.files import BINARY_FORMATS, FileChoice, InputFile, choose_documents
from darklode.pipeline.ingest.readers.markup import BadDocumentError, Prose, read_prose
from darklode.pipeline.ingest.readers.office import read_office
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.text import read_all
from darklode.pipeline.ingest.rejects import MAX_PAYLOAD_BYTES, Intake
from darklode.pipeline.ingest.rows import (
    PART_END_MODULUS,
    PartBuffer,
    RowBlock,
    SeenKeys,
    blank_to_null,
    common_faults,
    drop_faulty,
    keys_of,
)
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import DOCUMENTS

BLOCK_BYTES = 1 << 20  # a block of rows ends after documents of this total file size
Row = dict[str, str | None]


class FolderReader:
    """Reads the documents of a folder.

    Args:
        path: the folder as given by the user, for messages.
        columns: keys of front matter and names of meta elements that are roles.
        intake: receives rejected files.
        limit: maximum file size in bytes.
    """

    def __init__(self, path: str, columns: ColumnMapping, intake: Intake, limit: int) -> None:
        self._path = path
        self._columns = columns
        self._intake = intake
        self._limit = limit
        self._keys: dict[str, None] = {}

    def read(self, choice: FileChoice) -> Iterator[RowBlock]:
        """Yield the documents in path order, in blocks of about a megabyte.

        Raises:
            InputError: a file cannot be opened, or a key from the settings is in no file.
        """
        yield from self.blocks(choice.files)
        for role, name in self._columns.names.items():
            if role != "text":
                self._columns.check(self._path, role, name, self._keys)

    def blocks(self, documents: Iterable[InputFile]) -> Iterator[RowBlock]:
        """Yield the documents of some files, without checking keys."""
        rows: list[Row] = []
        files: list[str] = []
        size = 0
        for file in documents:
            row = self._read(file)
            if row:
                rows.append(row)
                files.append(file.name)
                size += file.size
            if size >= BLOCK_BYTES:
                yield _make_block(rows, files)
                rows, files, size = [], [], 0
        if rows:
            yield _make_block(rows, files)

    def _read(self, file: InputFile) -> Row | None:
        """Read a file as one document; None if it is rejected. Text removed from an HTML page is also a reject."""
        self._intake.count_rows(1)
        data: bytes | None = None
        try:
            try:
                data = read_all(file, self._intake.set_position, self._limit)
            finally:
                self._intake.close_file(file)
            prose = self._prose(data, file)
            fields = self._front_matter_fields(prose)
        except (BadDocumentError, DamagedFile) as error:
            excerpt = data and data[:MAX_PAYLOAD_BYTES].decode(errors="replace")
            self._intake.reject(str(error), file.name, None, excerpt or None)
            return None
        for reason, removed in prose.removed.items():
            self._intake.count_rows(1)
            self._intake.reject(reason, file.name, None, removed, other_kind=True)
        return {"doc_id": file.name, "title": prose.title, "text": prose.text, **fields}

    def _front_matter_fields(self, prose: Prose) -> dict[str, str]:
        """Values of front matter or meta elements by role, without empty ones; raises BadDocumentError."""
        values = {key: (value or "").strip() for key, value in prose.head.items()}
        self._keys.update({key: None for key, value in values.items() if value})
        fields = self._columns.pick(values)
        if not fields.get("tenant", "whoever"):  # otherwise it would get the default tenant
            raise BadDocumentError("front matter: tenant is not a plain value")
        return {role: value for role, value in fields.items() if value}

    def _prose(self, data: bytes | None, file: InputFile) -> Prose:
        """Parse the content of a file, None if it was too long; raises BadDocumentError."""
        if data is None:
            raise BadDocumentError(f"row longer than {self._limit} bytes")
        if file.format in BINARY_FORMATS:
            return read_office(data, file.format or "")
        if b"\0" in data:
            raise BadDocumentError("NUL byte")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise BadDocumentError("not UTF-8") from error
        return read_prose(text, file.format or "text")


def _make_block(rows: list[Row], files: list[str]) -> RowBlock:
    """A block of documents that are one file each, so that they have no line."""
    columns = {role: pa.array([row.get(role) for row in rows], pa.string()) for role in DOCUMENT_COLUMNS}
    return RowBlock(pa.array(files, pa.string()), columns, pa.nulls(len(rows), pa.int64()))


INGEST_DOCUMENTS = Stage("ingest_documents", 4, (), ("documents",))


def ingest_documents(path: str, output: Output, settings: IngestSettings) -> None:
    """Read a file or folder of documents into `documents`; unreadable rows go to `rejects` with a reason.

    Memory depends on the longest row, plus 8 bytes per document.

    Raises:
        InputError: there is nothing to read, a file cannot be read, or a column is missing.
        TooManyRejects: more than `settings.max_reject_share` of the rows are unreadable.
    """
    choice = choose_documents(path, settings.documents.format)
    intake = Intake(output, "documents", path, choice.files)
    parts = PartBuffer(output, "documents")
    seen_keys = SeenKeys()
    for file in choice.other_files:
        intake.reject_file(file)
    for block in _read_blocks(path, choice, intake, settings):
        clean, keys = select_usable(block, intake, seen_keys, settings)
        parts.add(_document_rows(clean), keys % PART_END_MODULUS == 0)
    parts.close()
    intake.close(settings.max_reject_share)


def _read_blocks(path: str, choice: FileChoice, intake: Intake, settings: IngestSettings) -> Iterator[RowBlock]:
    columns = document_columns(settings.documents.columns)
    if choice.format == "folder":
        yield from FolderReader(path, columns, intake, settings.max_row_bytes).read(choice)
        return
    for file in choice.files:
        yield from read_tabular(file, choice.format, columns, intake, settings.max_row_bytes)


def select_usable(
    block: RowBlock, intake: Intake, seen_keys: SeenKeys, settings: IngestSettings
) -> tuple[RowBlock, Keys]:
    """Select the rows with a text and a unique id; the others are rejected.

    Args:
        block: rows with columns named by role (doc_id, text, …).
        intake: receives the rejected rows.
        seen_keys: ids of earlier blocks of the same ingest; the ids of this block are added.
        settings: the settings `ingest`.

    Returns:
        The rows, and the hash of each row's tenant and id.
    """
    readable = drop_faulty(block, common_faults(block, "doc_id", settings), intake)
    valid_rows = (readable if "doc_id" in readable.columns else _with_ids(readable)).complete(settings)
    keys = keys_of(valid_rows.columns["tenant"].to_pylist(), valid_rows.columns["doc_id"].to_pylist())
    is_repeated = seen_keys.find_repeated(keys)
    return drop_faulty(valid_rows, [("duplicate id", is_repeated)], intake), keys[~is_repeated]


def _with_ids(block: RowBlock) -> RowBlock:
    """Add a column `doc_id` of file and line, such as `docs.csv:3`."""
    doc_ids = pc.binary_join_element_wise(block.files, block.lines.cast(pa.string()), ":")
    return RowBlock(block.files, block.columns | {"doc_id": doc_ids}, block.lines)


def _document_rows(block: RowBlock) -> pa.Table:
    """Rows of `documents`. The content hash (128 bits) covers title and text; later stages detect changes by it."""
    titles = blank_to_null(block.columns.get("title", block.nulls()))
    texts = block.columns["text"]
    pairs = zip(titles.to_pylist(), texts.to_pylist(), strict=True)
    hashes = [hashlib.sha256(f"{title or ''}\0{text}".encode()).hexdigest()[:32] for title, text in pairs]
    return DOCUMENTS.rows(
        {
            "tenant": block.columns["tenant"],
            "doc_id": block.columns["doc_id"],
            "title": titles,
            "topic": blank_to_null(block.columns.get("topic", block.nulls())),
            "text": texts,
            "url": blank_to_null(block.columns.get("url", block.nulls())),
            "source": block.files,
            "content_hash": hashes,
        }
    )
