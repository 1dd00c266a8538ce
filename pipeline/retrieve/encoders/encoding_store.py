"""Encodings of texts that are not one dense vector, such as sparse vectors, cached by content hash."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import first_of_each, keys_of
from darklode.pipeline.base.memory.store import KeyedStore, LookupResult
from darklode.pipeline.base.models.running import RunningModel
from darklode.pipeline.base.types import Ints
from darklode.pipeline.retrieve.encoders.caching import HashedTexts, cache_id

Encode = Callable[[list[str]], pa.Table]
"""Encodings of texts: a row for each, with the columns of the store's values."""


class ModelOfSide(Protocol):
    """Makes the encoder of queries, or that of chunks."""

    def __call__(self, running: RunningModel, *, queries: bool) -> Encode: ...


STORE_SECONDS = 5.0
"""Seconds of encoding until encodings are stored; a kill loses these and the texts in flight."""

_FORWARD_PASSES = 8  # forward passes after which encodings can be stored


class EncodingStore:
    """Encodings of texts; missing ones are computed and stored.

    Args:
        store: a store whose rows have the key `content_hash`.
        owner: everything that can change an encoding.
        encode: not called if nothing is missing.
        texts_at_once: number of texts passed to `encode` at once; not called if nothing is missing.
    """

    def __init__(self, store: KeyedStore, owner: str, encode: Encode, texts_at_once: Callable[[], int]) -> None:
        self._store, self._owner = store, owner
        self._encode, self._texts_at_once = encode, texts_at_once

    @classmethod
    def of_model(
        cls, store: KeyedStore, model_id: str, running: RunningModel, model: ModelOfSide
    ) -> tuple[EncodingStore, EncodingStore]:
        """The encodings of queries, and those of chunks, by the same model.

        Args:
            store: see `EncodingStore`.
            model_id: everything that can change an encoding, besides the side.
            running: the model; not loaded if nothing is missing.
            model: makes the encoder of a side.
        """

        def side(is_query: bool) -> EncodingStore:
            encode = model(running, queries=is_query)
            owner = cache_id(model_id, queries=is_query)
            return cls(store, owner, encode, lambda: _FORWARD_PASSES * running.inputs_per_pass)

        return side(True), side(False)

    def encodings(self, texts: HashedTexts) -> pa.Table:
        """Encodings of texts, a row for each, in their order.

        Raises:
            ArtifactError: encodings were pruned while in use.
        """
        keys = pa.table({"content_hash": texts[0]})
        result = self._find(keys)
        is_missing = np.ones(len(texts[0]), np.bool_)
        is_missing[result.rows] = False
        if is_missing.any():
            self._encode_texts(texts, np.flatnonzero(is_missing))
            result = self._find(keys)
        if len(result.rows) < len(texts[0]):
            raise ArtifactError(f"encodings of {self._owner} were pruned while they were in use; start again")
        return result.values

    def _find(self, keys: pa.Table) -> LookupResult:
        return self._store.open(self._owner).find(keys)

    def _encode_texts(self, texts: HashedTexts, rows: Ints) -> None:
        """Encode and store texts, each distinct hash once, longest first."""
        hashes = texts[0].take(pa.array(rows))
        first = np.flatnonzero(first_of_each(keys_of(hashes)))
        distinct = texts[1].take(pa.array(rows[first]))
        order = first[np.argsort(-pc.utf8_length(distinct).to_numpy(), kind="stable")]
        step, waiting, stored_at = self._texts_at_once(), list[pa.Table](), time.monotonic()
        for start in range(0, len(order), step):
            positions = pa.array(order[start : start + step])
            encoded = self._encode(texts[1].take(pa.array(rows).take(positions)).to_pylist())
            waiting.append(encoded.append_column("content_hash", hashes.take(positions)))
            if start + step >= len(order) or time.monotonic() - stored_at > STORE_SECONDS:
                self._store.append(self._owner, pa.concat_tables(waiting))
                waiting, stored_at = [], time.monotonic()
        self._store.merge_small_parts(self._owner)
