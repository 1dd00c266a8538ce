"""How long a text is in tokens, guessed without its tokenizer, and which texts fit into one request."""

from __future__ import annotations

import string
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

ESTIMATE = 1
"""Revision of the estimate: it decides where a long text is cut, so it is part of the encoder's id."""

_WORDS = (string.ascii_letters + string.whitespace).encode()
_BEYOND_ASCII = bytes(range(128, 256))
_LETTERS_PER_TOKEN = 3
_BYTES_PER_TOKEN = 2
_SPECIAL_TOKENS = 2


@dataclass(frozen=True)
class TokenBatch:
    """Texts of one request, where they stand among all texts, and their estimated tokens together."""

    places: NDArray[np.int64]
    texts: list[str]
    tokens: int


def estimate_tokens(text: str) -> int:
    """Tokens of a text, guessed high: English prose has about a third fewer under WordPiece and byte-pair encoding.

    Three ASCII letters or blanks to a token, a digit or punctuation mark one token each, two bytes of UTF-8 beyond
    ASCII to a token (so 1.5 for a Chinese character), and two special tokens. Random letters can still take more.
    """
    data = text.encode("utf-8", "replace")
    beyond = len(data) - len(data.translate(None, _BEYOND_ASCII))
    words = len(data) - len(data.translate(None, _WORDS))
    marks = len(data) - beyond - words
    return ceil(words / _LETTERS_PER_TOKEN) + marks + ceil(beyond / _BYTES_PER_TOKEN) + _SPECIAL_TOKENS


def cut(text: str, max_tokens: int) -> str:
    """The longest beginning of a text whose estimate is at most `max_tokens` (at least one character)."""
    if estimate_tokens(text) <= max_tokens:
        return text
    lengths = range(1, len(text))
    return text[: max(1, bisect_right(lengths, max_tokens, key=lambda length: estimate_tokens(text[:length])))]


def fill(texts: Sequence[str], prompt: str, max_tokens: int, most_texts: int, most_tokens: int) -> Iterator[TokenBatch]:
    """Batches of prompted and cut texts in their order, none over a limit unless one text alone is.

    Blank texts are left out: endpoints refuse them.
    """
    places: list[int] = []
    batch: list[str] = []
    tokens = 0
    for position, text in enumerate(texts):
        if not text.strip():
            continue
        sent = cut(prompt + text, max_tokens)
        size = estimate_tokens(sent)
        if batch and (len(batch) == most_texts or tokens + size > most_tokens):
            yield TokenBatch(np.array(places, np.int64), batch, tokens)
            places, batch, tokens = [], [], 0
        places.append(position)
        batch.append(sent)
        tokens += size
    if batch:
        yield TokenBatch(np.array(places, np.int64), batch, tokens)
