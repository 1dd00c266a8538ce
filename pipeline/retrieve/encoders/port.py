"""What encoders are: texts in, vectors of one length out."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from hashlib import sha256
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Encoder(Protocol):
    """Encodes queries and documents into one space, where the inner product says how alike they are."""

    @property
    def encoder_id(self) -> str:
        """Names everything that can change a vector: the method, its revision and what it was fitted on or loaded from.

        Equal ids mean equal vectors.
        """

    @property
    def dimensions(self) -> int:
        """Length of a vector, at least 1."""

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, shape (len(texts), dimensions).

        A row has length 1, or is all zero where the encoder knows nothing of the text.
        """
        ...

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of documents or chunks, shape and rows as for queries."""
        ...


Vectors = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Places among the texts, and the vectors of the texts there, shape (len(places), dimensions)."""


class ModelEncoder(Encoder, Protocol):
    """An encoder whose vectors are worth keeping: it gives them batch by batch, so that each can be kept at once."""

    @property
    def cost(self) -> float:
        """Money spent so far, in the unit of the price in its settings; 0 for a model of one's own."""

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False, ids: Sequence[str] | None = None
    ) -> Generator[Vectors, None, None]:
        """Vectors of length 1, each text's once, in any order.

        Args:
            texts: none of them blank.
            queries: encode as queries, not as documents.
            ids: names of the texts, for error messages.

        Raises:
            DarklodeError: the encoder cannot go on; what it could finish was handed on before.
        """
        ...


def identity(kind: str, model: str, **facts: object) -> str:
    """`kind:model:fact=value:…`, in the order given.

    Prompts and parameters may be long: give their `short_hash`, not themselves.
    """
    return ":".join([kind, model, *(f"{name}={value}" for name, value in facts.items())])


def short_hash(*values: object) -> str:
    """Eight hexadecimal digits that change when a value does; `none` where all are empty."""
    if not any(values):
        return "none"
    return sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]
