"""What an embeddings endpoint sent back, checked before anything of it is believed."""

from __future__ import annotations

import base64
import json
from binascii import Error as NotBase64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


class BadReply(Exception):
    """A reply with status 200 that is not what was asked for; `place` is the text it fails for."""

    def __init__(self, reason: str, place: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place


@dataclass(frozen=True)
class Reply:
    """Unit vectors, shape (texts, dimensions), and the tokens billed, where the endpoint says."""

    vectors: NDArray[np.float32]
    tokens: int | None


def read_reply(content: bytes, texts: int, dimensions: int | None) -> Reply:
    """Vectors in the order of the texts.

    Args:
        content: body of the reply: the embeddings object of OpenAI's API, vectors as base64 or lists.
        texts: how many were sent.
        dimensions: length that a vector must have; None: whatever all have.

    Raises:
        BadReply: no JSON, another number of vectors or dimensions, indices that are no permutation, a value that is
            not finite, a vector of length zero.
    """
    body = _parsed(content)
    items = body.get("data")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadReply("has no list of vectors")
    if len(items) != texts:
        raise BadReply(f"holds {len(items)} vectors for {texts} texts", min(len(items), texts - 1))
    rows = [_vector(item, place) for place, item in enumerate(_ordered(items))]
    return Reply(_checked(rows, dimensions), _tokens(body))


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        raise BadReply(f"is not JSON (it starts with {content[:40].decode('utf-8', 'replace')!r})") from None
    if not isinstance(body, dict):
        raise BadReply("is not a JSON object")
    return body


def _ordered(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    indices = [item.get("index") for item in items]
    if all(index is None for index in indices):
        return items
    by_index = {index: item for index, item in zip(indices, items, strict=True) if isinstance(index, int)}
    if sorted(by_index) != list(range(len(items))):
        raise BadReply("numbers its vectors with other indices than 0 to n - 1")
    return [by_index[place] for place in range(len(items))]


def _vector(item: dict[str, Any], place: int) -> NDArray[np.float32]:
    value = item.get("embedding")
    try:
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        if isinstance(value, list):
            return np.array(value, np.float32).reshape(len(value))
    except (NotBase64, ValueError, TypeError, OverflowError):
        pass
    raise BadReply("has no vector of numbers", place)


def _checked(rows: list[NDArray[np.float32]], dimensions: int | None) -> NDArray[np.float32]:
    wanted = dimensions or len(rows[0])
    for place, row in enumerate(rows):
        if len(row) != wanted or not len(row):
            raise BadReply(f"has {len(row)} dimensions where {wanted or 'some'} are expected", place)
    vectors = np.stack(rows)
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    for wrong, name in ((~np.isfinite(lengths), "a NaN or an infinity"), (lengths == 0, "only zeros")):
        if wrong.any():
            raise BadReply(f"has a vector with {name}", int(wrong.argmax()))
    return np.asarray(vectors / lengths, np.float32)


def _tokens(body: dict[str, Any]) -> int | None:
    usage = body.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) and total > 0 else None
