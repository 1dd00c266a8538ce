"""What encoders on this machine share: batches of texts of similar length, and unit vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.retrieve.encoders.port import Vectors

_FORWARD_PASSES = 32
"""Forward passes per device after which vectors are yielded."""


class LocalEncoder(ABC):
    """A `ModelEncoder` whose model runs on this machine and costs nothing per text."""

    encoder_id: str
    dimensions: int
    cost = 0.0

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, shape (len(texts), dimensions), in the order of the texts."""
        return self._encode(texts, queries=True)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors, shape (len(texts), dimensions), in the order of the texts."""
        return self._encode(texts, queries=False)

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False, ids: Sequence[str] | None = None
    ) -> Generator[Vectors, None, None]:
        """Vectors as they are computed, shortest texts first."""
        order = np.argsort([len(text) for text in texts], kind="stable")
        step = _FORWARD_PASSES * self._texts_per_pass
        for start in range(0, len(order), step):
            places = order[start : start + step]
            names = [ids[position] for position in places] if ids else None
            yield places, self._encode([texts[position] for position in places], queries=queries, ids=names)

    @property
    @abstractmethod
    def _texts_per_pass(self) -> int:
        """Texts in a forward pass on all devices."""

    @abstractmethod
    def _encode(self, texts: Sequence[str], *, queries: bool, ids: Sequence[str] | None = None) -> NDArray[np.float32]:
        """Unit vectors of texts; `ids` name them in errors."""


def unit_vectors(
    vectors: NDArray[np.float32], texts: Sequence[str], ids: Sequence[str] | None, *, model: str, advice: str
) -> NDArray[np.float32]:
    """Vectors scaled to length 1; a zero vector stays zero.

    Args:
        vectors: shape (len(texts), dimensions).
        texts: what they encode, for the error.
        ids: names of the texts, for the error.
        model: name of the model, for the error.
        advice: cause and remedy of a vector with NaN or infinity.

    Raises:
        DarklodeError: a vector with NaN or infinity.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    broken = ~np.isfinite(lengths[:, 0])
    if broken.any():
        row = int(broken.argmax())
        text_name = f"{texts[row][:60]!r}" + (f" (content hash {ids[row]})" if ids else "")
        raise DarklodeError(f"{model} gave a vector with NaN or infinity for {text_name}: {advice}")
    return np.asarray(vectors / np.maximum(lengths, np.float32(1e-12)), np.float32)
