"""An encoder that is loaded on first use: a full cache needs no model, GPU or key."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.port import ModelEncoder, Vectors

_cached_model: list[tuple[str, ModelEncoder]] = []


def release() -> None:
    """Release the encoder that this process holds, and its memory."""
    _cached_model.clear()


def _load(settings: EncoderKind, root: str | None) -> ModelEncoder:
    """Load the encoder; a process holds one at a time, because several large models do not fit on one GPU."""
    key = f"{settings.model_dump_json()} {root}"
    if not _cached_model or _cached_model[0][0] != key:
        release()
        _cached_model.append((key, settings.load(root)))
    return _cached_model[0][1]


class Deferred:
    """Everything but the id loads the encoder, unless this process still holds it.

    Args:
        settings: settings of the encoder.
        root: see `EncoderKind.load`.

    Raises:
        MissingPart: a hub model that is not in the local cache, so its revision is unknown.
        SettingsError: an invalid base_url.
    """

    def __init__(self, settings: EncoderKind, root: str | None = None) -> None:
        self._settings, self._root = settings, root
        self.encoder_id = settings.encoder_id()

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return _load(self._settings, self._root).dimensions

    @property
    def cost(self) -> float:
        """Money spent by the encoder that this process holds."""
        return _load(self._settings, self._root).cost

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return _load(self._settings, self._root).encode_queries(texts)

    def encode_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return _load(self._settings, self._root).encode_documents(texts)

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False, ids: Sequence[str] | None = None
    ) -> Generator[Vectors, None, None]:
        return _load(self._settings, self._root).encode_batches(texts, queries=queries, ids=ids)
