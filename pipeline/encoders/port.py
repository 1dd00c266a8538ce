"""What an encoder is: texts in, vectors of one length out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Encoder(Protocol):
    """Encodes queries and documents into one space, where the inner product says how alike they are.

    Attributes:
        encoder_id: names everything that can change a vector: the method, its revision and what it was
            fitted on or loaded from. Equal ids mean equal vectors.
        dimensions: length of a vector, at least 1.
    """

    encoder_id: str
    dimensions: int

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, shape (len(texts), dimensions).

        A row has length 1, or is all zero where the encoder knows nothing of the text.
        """
        ...

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of documents or chunks, shape and rows as for queries."""
        ...
