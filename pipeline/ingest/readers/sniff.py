"""What a file is whatever its ending says, by its first bytes: a workbook, a PDF, text of another encoding."""

import codecs
import shlex
from pathlib import PurePosixPath

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.files import CONVERSIONS, InputFile

LATIN = "WINDOWS-1252"
"""What text that is no UTF-8 mostly is: Latin-1, with more signs."""

HEAD = 4096
"""So many bytes decide."""

MAGIC = {
    b"PK\x03\x04": (".xlsx", "a workbook or another packed file"),
    b"\xd0\xcf\x11\xe0": (".xls", "a file of an old office program"),
    b"%PDF": (".pdf", "a PDF"),
    b"PAR1": (None, "Parquet: give it the ending .parquet"),
    b"\x1f\x8b": (None, "packed by gzip: give it the ending .gz"),
    b"\x28\xb5\x2f\xfd": (None, "packed by zstd: unpack it first"),
    b"BZh": (None, "packed by bzip2: unpack it first"),
    b"SQLite": (None, "a database: export the table as CSV"),
}


def check_content(file: InputFile, head: bytes) -> None:
    """See that a file is text as far as its first bytes show.

    Args:
        file: the file.
        head: its first bytes, as `pieces` gives them.

    Raises:
        InputError: it is something else; the message says how to convert it.
    """
    for magic, (ending, content) in MAGIC.items():
        if head.startswith(magic):
            how = f"; {CONVERSIONS[ending].format(name=shlex.quote(file.path.name))}" if ending else ""
            raise InputError(f"{file.path} is {content}{how}")
    wide = _is_utf16(head[:HEAD])
    if wide:
        raise InputError(f"{file.path} is {wide} without a byte order mark; {recoding(file.path.name, wide)}")


def _is_utf16(head: bytes) -> str:
    """UTF-16 by its zeros: in Latin text every second byte is one."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) * 4 < len(head) or len(head) < 4 or min(even, odd) * 4 > max(even, odd):
        return ""
    return "UTF-16LE" if odd > even else "UTF-16BE"


def is_utf16(file: InputFile) -> bool:
    """Whether a file begins with UTF-16's mark."""
    with file.path.open("rb") as raw:
        return raw.read(2) in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}


def recoding(name: str, encoding: str) -> str:
    """The command that makes UTF-8 of a file."""
    path = PurePosixPath(name)
    to = str(path.with_name(f"{path.stem}.utf8{path.suffix}"))
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(name)} > {shlex.quote(to)}"
