"""A text file's bytes as UTF-8, piece by piece: gzip and byte order marks are dealt with here."""

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import IO

from pipeline.errors import InputError
from pipeline.ingest.files import File

PIECE_BYTES = 1 << 20


def pieces(file: File, at: Callable[[int], None]) -> Iterator[bytes]:
    """The file's content in pieces of about a megabyte; `at` is told how many of the file's bytes are read.

    UTF-8 and UTF-16 byte order marks are taken away, and UTF-16 becomes UTF-8; nothing else is checked.

    Raises:
        InputError: the file cannot be opened, its gzip is damaged or cut off, or its UTF-16 is invalid.
    """
    try:
        with file.path.open("rb") as raw:
            packed = file.name.lower().endswith(".gz")
            with gzip.GzipFile(fileobj=raw) if packed else nullcontext(raw) as stream:
                yield from _decoded(stream, lambda: at(raw.tell()))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{file.path} is not a whole gzip file ({error}); copy it again") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file.path} begins as UTF-16 but is not ({error.reason}); save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{file.path} cannot be read ({error.strerror}); check its permissions") from error


def _decoded(stream: IO[bytes] | gzip.GzipFile, tell: Callable[[], None]) -> Iterator[bytes]:
    piece = stream.read(PIECE_BYTES)
    wide = piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16")()
    piece = piece.removeprefix(codecs.BOM_UTF8)
    while piece:
        yield decoder.decode(piece).encode() if wide else piece
        tell()
        piece = stream.read(PIECE_BYTES)
    if wide:
        decoder.decode(b"", final=True)


def whole(file: File, at: Callable[[int], None], limit: int) -> bytes | None:
    """The whole content as `pieces` gives it; None where it is longer than `limit` bytes."""
    taken, size = [], 0
    for piece in pieces(file, at):
        taken.append(piece)
        size += len(piece)
        if size > limit:
            return None
    return b"".join(taken)
