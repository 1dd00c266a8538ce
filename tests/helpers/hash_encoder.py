"""An encoder without a model: a text's vector is drawn from its hash, so that equal texts and only they are near."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.retrieve.encoders.port import Vectors


def content_hash(text: str) -> str:
    """32 hex digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class HashEncoder:
    """Unit vectors, equal in every process; a text's words decide, so that texts sharing words are near.

    Args:
        dimensions: numbers a vector.
        encoder_id: another one makes other vectors.
    """

    def __init__(self, dimensions: int = 16, encoder_id: str = "hash-1") -> None:
        self.encoder_id = encoder_id
        self.dimensions = dimensions
        self.cost = 0.0
        self.calls: list[list[str]] = []
        """The documents of each call."""

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False, ids: Sequence[str] | None = None
    ) -> Generator[Vectors, None, None]:
        """See `ModelEncoder`: ten texts at a time, the last first."""
        assert ids is None or len(ids) == len(texts)
        encode = self.encode_queries if queries else self.encode_documents
        for end in range(len(texts), 0, -10):
            places = np.arange(max(0, end - 10), end)
            yield places, encode([texts[place] for place in places])

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Encoder`; an empty query has the zero vector."""
        vectors = np.zeros((len(texts), self.dimensions))
        for row, text in enumerate(texts):
            for word in text.split():
                vectors[row] += self._drawn(word)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.divide(vectors, lengths, out=vectors, where=lengths > 0).astype(np.float32)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Encoder`."""
        self.calls.append(list(texts))
        return self.encode_queries(texts)

    def _drawn(self, word: str) -> NDArray[np.float64]:
        seed = hashlib.sha256(f"{self.encoder_id}\n{word}".encode()).digest()
        return np.random.default_rng(np.frombuffer(seed, dtype=np.uint32)).standard_normal(self.dimensions)
