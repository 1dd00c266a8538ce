"""Text files cut into records: one line each, or in CSV as many lines as the quotes say. Memory is bounded."""

import re
from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from pipeline.ingest.files import File
from pipeline.ingest.pieces import pieces
from pipeline.ingest.records import Ints, Records


def records_of(file: File, at: Callable[[int], None], limit: int, delimiter: str | None = None) -> Iterator[Records]:
    """Read a file's records in blocks of about a megabyte.

    Args:
        file: the file.
        at: told how many of its bytes are read.
        limit: longest record in bytes; of a longer one only the beginning is kept, with a fault.
        delimiter: of a CSV file, where quoted fields may hold line ends; None: each line is a record.
    """
    closed = _closed(delimiter) if delimiter else None
    carry, number = b"", 1
    for data in chain(_whole_lines(pieces(file, at), limit), [None]):
        text = carry + (data or b"")
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
        inner, fault, rest = np.zeros(len(ends), dtype=bool), None, len(ends)
        if closed:
            inner, opened = _quoted(text, ends, closed)
            if opened is not None:
                begin = int(ends[opened - 1]) if opened else 0
                hopeless = data is None or len(text) - begin > limit
                fault, rest = (opened, rest) if hopeless else (None, opened)
        yield _cut(text, ends[:rest], inner[:rest], number, limit, fault)
        number += rest
        carry = text[int(ends[rest - 1]) if rest else 0 :]


def _whole_lines(source: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """Blocks of whole lines; a line longer than the limit is cut one byte past it."""
    pending = b""
    for piece in source:
        first, last = piece.find(b"\n"), piece.rfind(b"\n") + 1
        if not last:
            pending = (pending + piece)[: limit + 1]
            continue
        yield (pending + piece[:first])[: limit + 1] + piece[first:last]
        pending = piece[last:][: limit + 1]
    if pending:
        yield pending + b"\n"


def _closed(delimiter: str) -> re.Pattern[bytes]:
    """Matches a line that ends outside quotes. A quote opens a field only at its beginning: 5" pipe stays one."""
    d = re.escape(delimiter)
    return re.compile(rf'(?:(?:"(?:[^"]|"")*+"[^{d}\n]*+|[^"{d}\n][^{d}\n]*+)?(?:{d}|\n))*+'.encode())


def _quoted(text: bytes, ends: Ints, closed: re.Pattern[bytes]) -> tuple[NDArray[np.bool_], int | None]:
    """Find the line ends that lie inside quotes, and the line, if any, whose quote is still open at the end."""
    inner = np.zeros(len(ends), dtype=bool)
    quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == ord('"'))
    counts = np.diff(np.searchsorted(quotes, ends), prepend=0)
    opened: int | None = None
    for line in map(int, np.flatnonzero(counts % 2)):
        if opened is not None:
            inner[opened:line] = True
            opened = None
        elif not closed.fullmatch(text, int(ends[line - 1]) if line else 0, int(ends[line])):
            opened = line
    return inner, opened


def _cut(text: bytes, ends: Ints, inner: NDArray[np.bool_], number: int, limit: int, unclosed: int | None) -> Records:
    last = np.flatnonzero(~inner)
    stops = ends[last]
    starts = np.concatenate([[0], stops])[: len(stops)].astype(np.int64)
    lines = np.concatenate([[0], last + 1])[: len(last)].astype(np.int64) + number
    sizes = stops - starts - 1
    faults = {int(at): f"row longer than {limit} bytes" for at in np.flatnonzero(sizes > limit)}
    if unclosed is not None:
        faults.setdefault(int(np.searchsorted(last, unclosed)), "quote never closed")
    empty = (sizes == 0) | ((sizes == 1) & (np.frombuffer(text, np.uint8)[starts] == ord("\r")))
    if not empty.any():
        return Records(text, starts, stops, lines, faults)
    kept = np.flatnonzero(~empty)
    faults = {int(np.searchsorted(kept, at)): reason for at, reason in faults.items()}
    return Records(text, starts[kept], stops[kept], lines[kept], faults)
