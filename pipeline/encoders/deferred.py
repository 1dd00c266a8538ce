"""An encoder that is loaded when it first has work: a full cache needs no model, no GPU and no key."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.encoders.port import ModelEncoder, Vectors
from pipeline.encoders.registry import encoder_id, load_encoder
from schemas.settings import EncoderSettings

_held: list[tuple[str, ModelEncoder]] = []


def release() -> None:
    """Let go of the encoder that this process holds, and of its memory."""
    _held.clear()


def _loaded(settings: EncoderSettings) -> ModelEncoder:
    """A process holds one encoder at a time: six large models do not fit on one GPU together."""
    key = settings.model_dump_json()
    if not _held or _held[0][0] != key:
        release()
        _held.append((key, load_encoder(settings)))
    return _held[0][1]


class Deferred:
    """See `ModelEncoder`; all but the id loads the encoder, unless this process still holds it.

    Raises:
        MissingPart: a model of the hub that is not in the local cache, so that its revision is not known.
        SettingsError: a base_url that cannot be used.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        self._settings = settings
        self.encoder_id = encoder_id(settings)

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return _loaded(self._settings).dimensions

    @property
    def cost(self) -> float:
        """Money spent by the encoder that this process holds."""
        return _loaded(self._settings).cost

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Encoder`."""
        return _loaded(self._settings).encode_queries(texts)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Encoder`."""
        return _loaded(self._settings).encode_documents(texts)

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False, ids: Sequence[str] | None = None
    ) -> Generator[Vectors, None, None]:
        """See `ModelEncoder`."""
        return _loaded(self._settings).encode_batches(texts, queries=queries, ids=ids)
