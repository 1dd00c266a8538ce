"""Estimate token counts without a tokenizer, and group texts into requests."""

from __future__ import annotations

import string
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

ESTIMATE_REVISION = 1
"""Revision of the estimate. Part of the encoder's id, because the estimate decides where texts are truncated."""

_WORD_BYTES = (string.ascii_letters + string.whitespace).encode()
_NON_ASCII_BYTES = bytes(range(128, 256))
_LETTERS_PER_TOKEN = 3
_BYTES_PER_TOKEN = 2
_SPECIAL_TOKENS = 2


@dataclass(frozen=True)
class TokenBatch:
    """Texts of one request, their indices among all texts, and their estimated tokens in total."""

    places: NDArray[np.int64]
    texts: list[str]
    tokens: int


def estimate_tokens(text: str) -> int:
    """Upper estimate of a text's tokens: English prose has about a third fewer with WordPiece and byte-pair encoding.

    Three ASCII letters or spaces per token, one token per digit or punctuation mark, two bytes of non-ASCII UTF-8 per
    token (1.5 tokens per Chinese character), and two special tokens. Random letters can have more.
    """
    data = text.encode("utf-8", "replace")
    n_beyond_ascii = len(data) - len(data.translate(None, _NON_ASCII_BYTES))
    n_letters = len(data) - len(data.translate(None, _WORD_BYTES))
    n_marks = len(data) - n_beyond_ascii - n_letters
    return ceil(n_letters / _LETTERS_PER_TOKEN) + n_marks + ceil(n_beyond_ascii / _BYTES_PER_TOKEN) + _SPECIAL_TOKENS


def truncate(text: str, max_tokens: int) -> str:
    """The longest prefix of a text with an estimate of at most `max_tokens` (at least one character)."""
    if estimate_tokens(text) <= max_tokens:
        return text
    lengths = range(1, len(text))
    return text[: max(1, bisect_right(lengths, max_tokens, key=lambda length: estimate_tokens(text[:length])))]


def fill_batches(
    texts: Sequence[str], prompt: str, max_tokens: int, max_texts: int, max_batch_tokens: int
) -> Iterator[TokenBatch]:
    """Batches of prompted and truncated texts, in order; a batch exceeds a limit only if a single text does.

    Blank texts are omitted: endpoints reject them.
    """
    places: list[int] = []
    batch: list[str] = []
    tokens = 0
    for position, text in enumerate(texts):
        if not text.strip():
            continue
        prompted_text = truncate(prompt + text, max_tokens)
        n_tokens = estimate_tokens(prompted_text)
        if batch and (len(batch) == max_texts or tokens + n_tokens > max_batch_tokens):
            yield TokenBatch(np.array(places, np.int64), batch, tokens)
            places, batch, tokens = [], [], 0
        places.append(position)
        batch.append(prompted_text)
        tokens += n_tokens
    if batch:
        yield TokenBatch(np.array(places, np.int64), batch, tokens)
