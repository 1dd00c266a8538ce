"""Convert a JSON array or pretty-printed objects to JSON lines, piece by piece."""

import json
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Bytes

OPENING_BRACKETS, CLOSING_BRACKETS, WHITE_SPACE = (
    np.frombuffer(signs, np.uint8) for signs in (b"[{", b"]}", b" \t\r\n")
)
QUOTE, BACKSLASH, COMMA, LINE_END, BRACKET = b'"\\,\n['
_INCOMPLETE_TOKEN = re.compile(r"[\w\\.+-]*")
"""An incomplete number, name or escape at the end of a head."""


def is_array(head: bytes) -> bool:
    """Whether a file with this head is a JSON array."""
    return head.lstrip().startswith(b"[")


def is_pretty_printed(head: bytes) -> bool:
    """Whether a file with this head has an object over several lines, unlike JSON lines.

    This includes a first object that is incomplete in the head, if it is valid so far and has several lines.
    """
    text = head.decode(errors="replace").strip()
    if not text.startswith("{"):
        return False
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        cut_off = error.msg.startswith("Unterminated") or _INCOMPLETE_TOKEN.fullmatch(text, error.pos)
        end = len(text) if cut_off else 0
    except RecursionError:
        return False
    return "\n" in text[:end]


def objects(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Put each of the concatenated objects on one line.

    White space within objects is removed. Syntax is not checked, as in `elements`.
    """
    depth, inside, buffer = 0, False, b""
    for piece in pieces:
        data = buffer + piece
        complete = data.rstrip(b"\\")  # as in `elements`
        buffer = data[len(complete) :]
        if complete:
            text = np.frombuffer(complete, np.uint8)
            within, level = _nesting(text, depth, inside=inside)
            yield text[within | (level == 0) | ~np.isin(text, WHITE_SPACE)].tobytes()
            depth, inside = int(level[-1]), bool(within[-1])
    yield buffer


def elements(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Put each element of an array on one line: brackets are removed, commas between elements become line ends.

    White space between values is removed. Syntax is not checked: the reader of the lines reports errors.
    """
    depth, inside, buffer = 0, False, b""
    for piece in pieces:
        data = buffer + piece
        unescaped = data.rstrip(b"\\")  # whether a quote ends a string depends on all backslashes before it
        buffer = data[len(unescaped) :]
        if unescaped:
            lines, depth, inside = _lines(np.frombuffer(unescaped, np.uint8), depth, inside=inside)
            yield lines
    yield buffer


def _lines(text: Bytes, depth: int, *, inside: bool) -> tuple[bytes, int, bool]:
    """The lines of a piece, the bracket depth after it, and whether it ends inside a string."""
    within, level = _nesting(text, depth, inside=inside)
    ends = ~within & ((text == COMMA) & (level == 1) | np.isin(text, CLOSING_BRACKETS) & (level == 0))
    dropped = ~within & (np.isin(text, WHITE_SPACE) | (level == 1) & (text == BRACKET))
    return np.where(ends, np.uint8(LINE_END), text)[~dropped].tobytes(), int(level[-1]), bool(within[-1])


def _nesting(text: Bytes, depth: int, *, inside: bool) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """For each byte, whether it is inside a string, and the bracket depth after it."""
    within = (np.cumsum((text == QUOTE) & ~_is_escaped(text)) + inside) % 2 == 1
    opening, closing = (~within & np.isin(text, signs) for signs in (OPENING_BRACKETS, CLOSING_BRACKETS))
    return within, depth + np.cumsum(opening.astype(np.int64) - closing)


def _is_escaped(text: Bytes) -> NDArray[np.bool_]:
    """Mask of bytes preceded by an odd number of backslashes."""
    positions = np.arange(len(text))
    last_other = np.maximum.accumulate(np.where(text == BACKSLASH, -1, positions))
    escaped: NDArray[np.bool_] = np.concatenate([[0], (positions - last_other)[:-1]]) % 2 == 1
    return escaped
