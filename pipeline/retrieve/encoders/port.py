"""The port of encoders: texts in, vectors of one length out."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from hashlib import sha256
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Encoder(Protocol):
    """Encodes queries and documents into one space, in which the inner product is the similarity."""

    @property
    def encoder_id(self) -> str:
        """Everything that can change a vector: method, revision, and what it was fitted on or loaded from.

        Equal ids mean equal vectors.
        """

    @property
    def dimensions(self) -> int:
        """Length of a vector, at least 1."""

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, shape (len(texts), dimensions).

        Rows have length 1, or are zero if the encoder cannot represent the text.
        """
        ...

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of documents or chunks, like those of queries."""
        ...


Vectors = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Indices of texts, and their vectors, shape (len(indices), dimensions)."""


class ModelEncoder(Encoder, Protocol):
    """An encoder whose vectors are worth caching: it yields batches, so that each can be stored at once."""

    @property
    def cost(self) -> float:
        """Money spent so far, by the price in its settings; 0 for a local model."""

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False, ids: Sequence[str] | None = None
    ) -> Generator[Vectors, None, None]:
        """Unit vectors, each text's once, in any order.

        Args:
            texts: none blank.
            queries: encode as queries instead of documents.
            ids: names of the texts, for error messages.

        Raises:
            DarklodeError: the encoder cannot continue; finished batches were yielded before.
        """
        ...


def identity(kind: str, model: str, **facts: object) -> str:
    """`kind:model:fact=value:…`, in the order given.

    Pass long prompts and parameters as `short_hash`.
    """
    return ":".join([kind, model, *(f"{name}={value}" for name, value in facts.items())])


def short_hash(*values: object) -> str:
    """Eight hex digits of a hash of the values; `none` if all are empty."""
    if not any(values):
        return "none"
    return sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:8]
