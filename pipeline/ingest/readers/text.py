"""Split text files into records in bounded memory: a line each, or, in CSV, several lines if a field is quoted.

Handles gzip, byte order marks and invalid UTF-8.
"""

import codecs
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.errors import DamagedFile, InputError
from darklode.pipeline.base.types import Ints
from darklode.pipeline.ingest.files import InputFile
from darklode.pipeline.ingest.rejects import MAX_PAYLOAD_BYTES, Intake

PIECE_BYTES = 1 << 20  # bytes read at a time, which bounds memory together with the maximum row length


def pieces(file: InputFile, report_position: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the content in pieces of about a megabyte; `report_position` receives the bytes read so far.

    Byte order marks are removed, and UTF-16 is converted to UTF-8. If the first piece has carriage returns but no line
    feeds, carriage returns become line feeds.

    Raises:
        DamagedFile: gzip data is damaged or truncated, or UTF-16 is invalid.
        InputError: the file cannot be opened.
    """
    try:
        with file.path.open("rb") as raw:
            is_gzip = file.name.lower().endswith(".gz")
            with gzip.GzipFile(fileobj=raw) if is_gzip else nullcontext(raw) as stream:
                yield from _decode(stream, lambda: report_position(raw.tell()))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedFile(f"{file.path} is a damaged gzip file ({error}); copy it again") from error
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{file.path} begins as UTF-16 but is not ({error.reason}); save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{file.path} cannot be read ({error.strerror}); check its permissions") from error


def head_of(file: InputFile) -> bytes:
    """The first piece of a file, as from `pieces`; empty if the file is."""
    return next(pieces(file, lambda _position: None), b"")


def _decode(stream: IO[bytes] | gzip.GzipFile, tell: Callable[[], None]) -> Iterator[bytes]:
    """Yield the pieces of a stream as UTF-8 with line feeds; `tell` is called after each piece to report progress."""
    piece = stream.read(PIECE_BYTES)
    is_utf16 = piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16")()
    piece = piece.removeprefix(codecs.BOM_UTF8)
    has_only_returns = b"\r" in piece[:-1] and b"\n" not in piece
    while piece:
        utf8 = decoder.decode(piece).encode() if is_utf16 else piece
        yield utf8.replace(b"\r", b"\n") if has_only_returns else utf8
        tell()
        piece = stream.read(PIECE_BYTES)
    if is_utf16:
        decoder.decode(b"", final=True)


def read_all(file: InputFile, report_position: Callable[[int], None], limit: int) -> bytes | None:
    """The whole content, as from `pieces`; None if it is longer than `limit` bytes."""
    content, size = [], 0
    for piece in pieces(file, report_position):
        content.append(piece)
        size += len(piece)
        if size > limit:
            return None
    return b"".join(content)


@dataclass(frozen=True)
class LineRecords:
    """Records of a file: lines, or in CSV several lines with a quoted field. Empty lines are not records.

    Attributes:
        data: bytes of all records.
        starts: position in `data` of the first byte of each record.
        stops: position after the last byte of each record, which includes its line end.
        lines: number of each record's first line in the file, from 1.
        faults: reject reasons of invalid records, by position of the record.
    """

    data: bytes
    starts: Ints
    stops: Ints
    lines: Ints
    faults: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, at: int) -> bytes:
        """Bytes of a record, with its line end."""
        return self.data[self.starts[at] : self.stops[at]]

    def preview(self, at: int) -> str:
        """The beginning of a record for display; longer than a payload, because masking shortens it."""
        start = int(self.starts[at])
        data = self.data[start : min(int(self.stops[at]), start + MAX_PAYLOAD_BYTES)]
        return data.decode(errors="replace").rstrip("\r\n")

    def span(self, low: int, high: int) -> "LineRecords":
        """Records `low` to `high` (exclusive), with their own data only."""
        if low >= high:
            return LineRecords(b"", self.starts[:0], self.stops[:0], self.lines[:0])
        begin, end = int(self.starts[low]), int(self.stops[high - 1])
        faults = {at - low: reason for at, reason in self.faults.items() if low <= at < high}
        lines = self.lines[low:high]
        return LineRecords(
            self.data[begin:end], self.starts[low:high] - begin, self.stops[low:high] - begin, lines, faults
        )

    def select(self, mask: NDArray[np.bool_]) -> "LineRecords":
        """The selected records, with their own data only."""
        if mask.all():
            return self
        edges = np.zeros(len(self.data) + 1, np.int8)
        edges[self.starts[mask]] += 1
        edges[self.stops[mask]] -= 1
        data = np.frombuffer(self.data, np.uint8)[np.cumsum(edges[:-1], dtype=np.int8) > 0]
        sizes = (self.stops - self.starts)[mask]
        new_positions = np.cumsum(mask) - 1
        faults = {int(new_positions[at]): reason for at, reason in self.faults.items() if mask[at]}
        stops = np.cumsum(sizes)
        return LineRecords(data.tobytes(), stops - sizes, stops, self.lines[mask], faults)

    def without(self, bad: set[int]) -> "LineRecords":
        """The records except those at the positions `bad`; the result has no faults."""
        positions = [at for at in range(len(self)) if at not in bad]
        sizes = (self.stops - self.starts)[positions]
        stops = np.cumsum(sizes)
        return LineRecords(b"".join(map(self.raw, positions)), stops - sizes, stops, self.lines[positions])


def valid_records(records: LineRecords, file: InputFile, intake: Intake) -> LineRecords:
    """Count the records, and reject those that are too long, contain NUL bytes or are not UTF-8."""
    intake.count_rows(len(records))
    faults = records.faults | _faults_of_bytes(records)
    for at, reason in sorted(faults.items()):
        intake.reject(reason, file.name, int(records.lines[at]), records.preview(at))
    return records.without(set(faults)) if faults else records


def _faults_of_bytes(records: LineRecords) -> dict[int, str]:
    if _is_utf8(records.data) and b"\0" not in records.data:
        return {}
    faults = {}
    for at in range(len(records)):
        raw = records.raw(at)
        if b"\0" in raw:
            faults[at] = "NUL byte"
        elif not _is_utf8(raw):
            faults[at] = "not UTF-8"
    return {at: reason for at, reason in faults.items() if at not in records.faults}


def _is_utf8(data: bytes) -> bool:
    """Whether bytes are valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def lines_of(records: LineRecords) -> pa.Array:
    """Line numbers of the records, as a column."""
    return pa.array(records.lines, pa.int64())


def records_of(
    file: InputFile, report_position: Callable[[int], None], limit: int, delimiter: str | None = None
) -> Iterator[LineRecords]:
    """Read a file's records, as `records_in` does."""
    yield from records_in(pieces(file, report_position), limit, delimiter)


def records_in(source: Iterator[bytes], limit: int, delimiter: str | None = None) -> Iterator[LineRecords]:
    """Split pieces of a file into blocks of records of about a megabyte.

    Args:
        source: pieces of the file.
        limit: maximum record size in bytes; longer records are truncated and marked as faulty.
        delimiter: delimiter of a CSV file, whose quoted fields may contain line ends; None: each line is a record.
    """
    outside_quotes = _closing_pattern(delimiter) if delimiter else None
    carry = b""  # a CSV record whose quoted field continues in the next piece
    line_number = 1
    for data in chain(_whole_lines(source, limit), [None]):  # None: no more data follows
        text = carry + (data or b"")
        line_ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
        is_quoted = np.zeros(len(line_ends), dtype=bool)
        unclosed_line = None
        n_lines = len(line_ends)
        if outside_quotes:
            is_quoted, open_line = _quoted_ends(text, line_ends, outside_quotes)
            if open_line is not None:
                record_start = int(line_ends[open_line - 1]) if open_line else 0
                if data is None or len(text) - record_start > limit:
                    unclosed_line = open_line
                else:
                    n_lines = open_line
        yield _cut_records(text, line_ends[:n_lines], is_quoted[:n_lines], line_number, limit, unclosed_line)
        line_number += n_lines
        carry = text[int(line_ends[n_lines - 1]) if n_lines else 0 :]


def _whole_lines(source: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """Yield blocks of whole lines; lines longer than the limit are truncated one byte past it."""
    pending = b""
    for piece in source:
        first_end = piece.find(b"\n")
        last_end = piece.rfind(b"\n") + 1
        if not last_end:
            pending = (pending + piece)[: limit + 1]
            continue
        yield (pending + piece[:first_end])[: limit + 1] + piece[first_end:last_end]
        pending = piece[last_end:][: limit + 1]
    if pending:
        yield pending + b"\n"


def _closing_pattern(delimiter: str) -> re.Pattern[bytes]:
    """Pattern of a line that ends outside quotes. A quote opens a field only at its beginning, unlike in `5" pipe`."""
    escaped = re.escape(delimiter)
    quoted_cell, plain_cell = rf'"(?:[^"]|"")*+"[^{escaped}\n]*+', rf'[^"{escaped}\n][^{escaped}\n]*+'
    return re.compile(rf"(?:(?:{quoted_cell}|{plain_cell})?(?:{escaped}|\n))*+".encode())


def _quoted_ends(text: bytes, ends: Ints, closed: re.Pattern[bytes]) -> tuple[NDArray[np.bool_], int | None]:
    """Find the line ends inside quoted fields.

    Only lines with an odd number of quotes can open or close a field that spans lines.

    Args:
        text: lines of a CSV file.
        ends: position after each line end.
        closed: pattern of a line that ends outside quotes.

    Returns:
        A mask of the line ends inside quotes, and the line whose quote is still open at the end of the text, if any.
    """
    is_quoted = np.zeros(len(ends), dtype=bool)
    quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == ord('"'))
    quotes_per_line = np.diff(np.searchsorted(quotes, ends), prepend=0)
    open_line: int | None = None
    for line in map(int, np.flatnonzero(quotes_per_line % 2)):
        if open_line is not None:
            is_quoted[open_line:line] = True
            open_line = None
        elif not closed.fullmatch(text, int(ends[line - 1]) if line else 0, int(ends[line])):
            open_line = line
    return is_quoted, open_line


def _cut_records(
    text: bytes, ends: Ints, inner: NDArray[np.bool_], number: int, limit: int, unclosed: int | None
) -> LineRecords:
    """Cut a text into records.

    Args:
        text: whole lines.
        ends: position after each line end.
        inner: mask of the line ends inside quoted fields, which do not end a record.
        number: number of the first line in the file.
        limit: maximum record size in bytes.
        unclosed: a line whose quote is never closed; None if there is none.
    """
    last_lines = np.flatnonzero(~inner)
    stops = ends[last_lines]
    starts = np.concatenate([[0], stops])[: len(stops)].astype(np.int64)
    lines = np.concatenate([[0], last_lines + 1])[: len(last_lines)].astype(np.int64) + number
    sizes = stops - starts - 1
    faults = {int(at): f"row longer than {limit} bytes" for at in np.flatnonzero(sizes > limit)}
    if unclosed is not None:
        faults.setdefault(int(np.searchsorted(last_lines, unclosed)), "quote never closed")
    is_empty = (sizes == 0) | ((sizes == 1) & (np.frombuffer(text, np.uint8)[starts] == ord("\r")))
    if not is_empty.any():
        return LineRecords(text, starts, stops, lines, faults)
    non_empty = np.flatnonzero(~is_empty)
    faults = {int(np.searchsorted(non_empty, at)): reason for at, reason in faults.items()}
    return LineRecords(text, starts[non_empty], stops[non_empty], lines[non_empty], faults)
