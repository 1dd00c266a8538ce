"""Appending to the embedding cache: vectors are checked, gathered to shards and written whole."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from pipeline.artifacts.store import Store
from pipeline.encoders.keys import Keys, hash_of, keys_of
from pipeline.encoders.shards import Layout, Vectors, encode_keys
from pipeline.errors import ArtifactError

SHARD_BYTES = 64 << 20
FLUSH_SECONDS = 10.0
"""A shard is closed when it is full or when its first vector has waited so long: what a kill may cost."""


class Writer:
    """Keeps one encoder's vectors; any number of writers work at once, also on other machines.

    Leaving its context writes what is still held, also when an error ends it: those vectors are good.
    """

    def __init__(self, store: Store, folder: str, layout: Layout) -> None:
        self._store, self._folder, self._layout = store, folder, layout
        self._held: list[tuple[Keys, Vectors]] = []
        self._held_bytes = 0
        self._since = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.flush()

    def add(self, hashes: Sequence[str] | pa.Array, vectors: Vectors) -> None:
        """Keep vectors, shape (len(hashes), dimensions), under their texts' content hashes.

        Raises:
            ArtifactError: a vector is zero, not finite or too large for the dtype, or has another length than the
                encoder's; the message names its hash. None of them is kept then.
        """
        keys = keys_of(hashes)
        good = _checked(keys, vectors, self._layout)
        step = max(1, SHARD_BYTES // self._layout.row_bytes)
        for start in range(0, len(keys), step):
            self._hold(keys[start : start + step], good[start : start + step])

    def _hold(self, keys: Keys, vectors: Vectors) -> None:
        if self._held_bytes + vectors.nbytes > SHARD_BYTES:
            self.flush()
        self._since = self._since if self._held else time.monotonic()
        self._held.append((keys, vectors))
        self._held_bytes += vectors.nbytes
        if time.monotonic() - self._since >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is held as one shard, its keys last."""
        if not self._held:
            return
        keys = np.concatenate([keys for keys, _ in self._held])
        vectors = np.concatenate([vectors for _, vectors in self._held])
        # The time keeps the first writer of a key first; the rest makes the name this writer's alone.
        name = f"{self._folder}/{time.time_ns():020d}-{uuid.uuid4().hex}"
        self._store.write(f"{name}.vectors", vectors.tobytes())
        self._store.write(f"{name}.keys", encode_keys(keys, _longest(vectors)))
        self._held, self._held_bytes = [], 0


def _checked(keys: Keys, vectors: Vectors, layout: Layout) -> Vectors:
    if vectors.ndim != 2 or vectors.shape != (len(keys), layout.dimensions):
        first = f" (the first is {hash_of(keys[0])})" if len(keys) else ""
        raise ArtifactError(
            f"{layout.encoder_id} gave vectors of shape {vectors.shape} for {len(keys)} texts{first}; "
            f"({len(keys)}, {layout.dimensions}) was expected, so none was cached"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        kept = np.array(vectors, dtype=np.dtype(layout.dtype).newbyteorder("<"))
    for bad, what in ((~np.isfinite(kept).all(axis=1), "a number that is not finite"), (~kept.any(axis=1), "only 0")):
        if bad.any():
            name = hash_of(keys[int(bad.argmax())])
            raise ArtifactError(
                f"{layout.encoder_id} gave a vector with {what} for the text {name} and {int(bad.sum()) - 1} others; "
                "none of its batch was cached. Check the encoder's dtype and that text"
            )
    return kept


def _longest(vectors: Vectors) -> float:
    return max(
        float(np.linalg.norm(vectors[start : start + 4096].astype(np.float64), axis=1).max())
        for start in range(0, len(vectors), 4096)
    )
