"""A JSON array or pretty-printed objects as lines: an object a line, piece by piece, to be read as JSON lines are."""

import json
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Bytes

OPENING, CLOSING, WHITE = (np.frombuffer(some, np.uint8) for some in (b"[{", b"]}", b" \t\r\n"))
QUOTE, BACKSLASH, COMMA, LINE_END, BRACKET = b'"\\,\n['
_BEGINNING = re.compile(r"[\w\\.+-]*")
"""Of a number, a name or an escape, as the end of a head may leave it."""


def is_array(head: bytes) -> bool:
    """Whether a file that begins so is a JSON array."""
    return head.lstrip().startswith(b"[")


def is_pretty_printed(head: bytes) -> bool:
    """Whether a file that begins so holds an object over several lines: JSON lines hold each on one.

    So does one whose first object goes on past the head, if nothing before is wrong and it already has several lines.
    """
    text = head.decode(errors="replace").strip()
    if not text.startswith("{"):
        return False
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        cut_off = error.msg.startswith("Unterminated") or _BEGINNING.fullmatch(text, error.pos)
        end = len(text) if cut_off else 0
    except RecursionError:
        return False
    return "\n" in text[:end]


def objects(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of objects that follow one another, each over any number of lines, as one line each.

    White space within an object is left out. Nothing else is checked, as in `elements`.
    """
    depth, inside, buffer = 0, False, b""
    for piece in pieces:
        data = buffer + piece
        complete = data.rstrip(b"\\")  # as in `elements`
        buffer = data[len(complete) :]
        if complete:
            text = np.frombuffer(complete, np.uint8)
            within, level = _nesting(text, depth, inside=inside)
            yield text[within | (level == 0) | ~np.isin(text, WHITE)].tobytes()
            depth, inside = int(level[-1]), bool(within[-1])
    yield buffer


def elements(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of an array without its brackets, and a line end in the place of each comma between its elements.

    White space between values is left out, so that an element lies on one line. Nothing else is checked: what is no
    JSON is for whoever reads the lines.
    """
    depth, inside, buffer = 0, False, b""
    for piece in pieces:
        data = buffer + piece
        unescaped = data.rstrip(b"\\")  # whether a quote ends a text depends on all backslashes before it
        buffer = data[len(unescaped) :]
        if unescaped:
            lines, depth, inside = _lines(np.frombuffer(unescaped, np.uint8), depth, inside=inside)
            yield lines
    yield buffer


def _lines(text: Bytes, depth: int, *, inside: bool) -> tuple[bytes, int, bool]:
    """The lines of a piece; how many brackets are open after it, and whether a text is."""
    within, level = _nesting(text, depth, inside=inside)
    ends = ~within & ((text == COMMA) & (level == 1) | np.isin(text, CLOSING) & (level == 0))
    dropped = ~within & (np.isin(text, WHITE) | (level == 1) & (text == BRACKET))
    return np.where(ends, np.uint8(LINE_END), text)[~dropped].tobytes(), int(level[-1]), bool(within[-1])


def _nesting(text: Bytes, depth: int, *, inside: bool) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """For each byte whether it is within a string, and how many brackets are open after it."""
    within = (np.cumsum((text == QUOTE) & ~_is_escaped(text)) + inside) % 2 == 1
    opening, closing = (~within & np.isin(text, some) for some in (OPENING, CLOSING))
    return within, depth + np.cumsum(opening.astype(np.int64) - closing)


def _is_escaped(text: Bytes) -> NDArray[np.bool_]:
    """Where an odd number of backslashes stands before a byte."""
    places = np.arange(len(text))
    last_other = np.maximum.accumulate(np.where(text == BACKSLASH, -1, places))
    escaped: NDArray[np.bool_] = np.concatenate([[0], (places - last_other)[:-1]]) % 2 == 1
    return escaped
