"""A folder of Markdown, HTML and text files, one document each."""

from collections.abc import Iterator

import pyarrow as pa

from pipeline.ingest.block import Block
from pipeline.ingest.choose import Choice
from pipeline.ingest.columns import DOCUMENTS, Columns
from pipeline.ingest.files import File
from pipeline.ingest.ledger import PAYLOAD, Ledger
from pipeline.ingest.markup import BadDocumentError, Prose, read_prose
from pipeline.ingest.pieces import whole

BLOCK_BYTES = 1 << 20
Row = dict[str, str | None]


class Folder:
    """Reads a folder's documents.

    Args:
        path: the folder as the user named it, for messages.
        columns: the keys of front matter, or names of meta elements, that play a part.
        ledger: keeps the files that are turned away.
        limit: the longest file that is read, in bytes.
    """

    def __init__(self, path: str, columns: Columns, ledger: Ledger, limit: int) -> None:
        self._path = path
        self._columns = columns
        self._ledger = ledger
        self._limit = limit
        self._keys: dict[str, None] = {}

    def read(self, choice: Choice) -> Iterator[Block]:
        """The documents in the order of their paths, in blocks of about a megabyte.

        Raises:
            InputError: a file cannot be opened, or no file has a key that the settings name.
        """
        rows: list[Row] = []
        files: list[str] = []
        size = 0
        for file in choice.files:
            row = self._read(file)
            if row:
                rows.append(row)
                files.append(file.name)
                size += file.size
            if size >= BLOCK_BYTES:
                yield _block(rows, files)
                rows, files, size = [], [], 0
        if rows:
            yield _block(rows, files)
        for role, name in self._columns.named.items():
            if role != "text":
                self._columns.check(self._path, role, name, self._keys)

    def _read(self, file: File) -> Row | None:
        self._ledger.saw(1)
        data = whole(file, self._ledger.at, self._limit)
        self._ledger.closed(file)
        try:
            prose = self._prose(data, file)
        except BadDocumentError as reason:
            shown = data and data[: 4 * PAYLOAD].decode(errors="replace")
            self._ledger.reject(str(reason), file.name, None, shown or None)
            return None
        head = {key: value for key, value in prose.head.items() if value.strip()}
        self._keys.update(dict.fromkeys(head))
        return {"doc_id": file.name, "title": prose.title, "text": prose.text, **self._columns.pick(head)}

    def _prose(self, data: bytes | None, file: File) -> Prose:
        if data is None:
            raise BadDocumentError(f"row longer than {self._limit} bytes")
        if b"\0" in data:
            raise BadDocumentError("NUL byte")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise BadDocumentError("not UTF-8") from error
        return read_prose(text, file.format or "text")


def _block(rows: list[Row], files: list[str]) -> Block:
    columns = {role: pa.array([row.get(role) for row in rows], pa.string()) for role in DOCUMENTS}
    return Block(pa.array(files, pa.string()), columns, pa.nulls(len(rows), pa.int64()))
