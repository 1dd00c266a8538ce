"""Detect files whose content does not match their extension: workbooks, PDFs, other encodings."""

import codecs
import shlex
from pathlib import PurePosixPath

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.files import CONVERSIONS, InputFile

LATIN = "WINDOWS-1252"
"""Assumed encoding of text that is not UTF-8: Latin-1 with more characters."""

HEAD_BYTES = 4096
"""Bytes examined for UTF-16."""

FILE_SIGNATURES = {
    b"PK\x03\x04": (".xlsx", "a workbook or another ZIP file"),
    b"\xd0\xcf\x11\xe0": (".xls", "a file of an old Office program"),
    b"%PDF": (".pdf", "a PDF"),
    b"PAR1": (None, "Parquet: rename it to .parquet"),
    b"\x1f\x8b": (None, "compressed by gzip: rename it to .gz"),
    b"\x28\xb5\x2f\xfd": (None, "compressed by zstd: decompress it first"),
    b"BZh": (None, "compressed by bzip2: decompress it first"),
    b"SQLite": (None, "a database: export the table as CSV"),
}


def check_content(file: InputFile, head: bytes) -> None:
    """Check by its first bytes that a file is text.

    Args:
        file: the file.
        head: its first bytes, from `head_of`.

    Raises:
        InputError: it is not; the message says how to convert it.
    """
    for magic, (ending, content) in FILE_SIGNATURES.items():
        if head.startswith(magic):
            how = f"; {CONVERSIONS[ending].format(name=shlex.quote(file.path.name))}" if ending else ""
            raise InputError(f"{file.path} is {content}{how}")
    encoding = _detect_utf16(head[:HEAD_BYTES])
    if encoding:
        raise InputError(f"{file.path} is {encoding} without a byte order mark; {recoding(file.path.name, encoding)}")


def _detect_utf16(head: bytes) -> str:
    """The UTF-16 encoding, or "": in Latin text in UTF-16, every second byte is zero."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) * 4 < len(head) or len(head) < 4 or min(even, odd) * 4 > max(even, odd):
        return ""
    return "UTF-16LE" if odd > even else "UTF-16BE"


def is_utf16(file: InputFile) -> bool:
    """Whether a file begins with a UTF-16 byte order mark."""
    with file.path.open("rb") as raw:
        return raw.read(2) in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}


def recoding(name: str, encoding: str) -> str:
    """The command that converts a file to UTF-8."""
    path = PurePosixPath(name)
    to = str(path.with_name(f"{path.stem}.utf8{path.suffix}"))
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(name)} > {shlex.quote(to)}"
