"""Learned sparse retrieval: weights of vocabulary terms for queries and chunks, searched by their inner product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.models.running import RunningModel
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.caching import HashedTexts, hash_queries
from darklode.pipeline.retrieve.encoders.encoding_store import EncodingStore
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.pipeline.retrieve.retrievers.topk import BLOCK_CELLS, best_hits, rank_keys, stack_hits

SPARSE_VECTOR_ROWS = RowKind(
    "sparse_vectors",
    "encoder",
    ("content_hash",),
    pa.schema([pa.field("indices", pa.list_(pa.int32())), pa.field("weights", pa.list_(pa.float32()))]),
)
"""Cached sparse vector of a text: ascending indices of the vocabulary, and their weights."""


class SparseModel:
    """A `SparseEncoder` of sentence-transformers, with the prompts of its own configuration.

    Args:
        running: the model.
        queries: encode with the model's query side.
    """

    def __init__(self, running: RunningModel, *, queries: bool) -> None:
        self._running, self._queries = running, queries

    def __call__(self, texts: list[str]) -> pa.Table:
        """Sparse vectors: a row with the values of `SPARSE_VECTOR_ROWS` for each text.

        Raises:
            MissingPart: the model or a package is missing.
            DarklodeError: a weight is not a number.
        """
        options = {"convert_to_sparse_tensor": True, "save_to_cpu": True}
        vectors = self._running.encode(texts, queries=self._queries, **options).coalesce()
        (text, index), weights = vectors.indices().numpy(), vectors.values().float().numpy()
        if not np.isfinite(weights).all():
            broken = texts[int(text[np.argmin(np.isfinite(weights))])]
            raise DarklodeError(
                f"{self._running.settings.model} gave a weight with NaN or infinity for {broken[:60]!r}; set dtype: "
                "bfloat16 or float32"
            )
        offsets = pa.array(np.searchsorted(text, np.arange(len(texts) + 1)), pa.int32())
        columns = (pa.array(index, pa.int32()), pa.array(weights, pa.float32()))
        return pa.table([pa.ListArray.from_arrays(offsets, column) for column in columns], ["indices", "weights"])


def sparse_matrix(rows: Iterable[pa.Table], width: int | None = None) -> csr_array:
    """Sparse vectors as a matrix, shape (n_texts, width): 8 bytes per weight.

    Args:
        rows: tables of sparse vectors.
        width: size of the vocabulary; weights beyond it are left out. None: the greatest index plus 1.
    """
    lengths, indices, weights = [np.zeros(1, np.int64)], [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    for table in rows:
        lists = table["indices"].combine_chunks()
        lengths.append(lists.value_lengths().to_numpy().astype(np.int64))
        indices.append(lists.flatten().to_numpy())
        weights.append(table["weights"].combine_chunks().flatten().to_numpy())
    index = np.concatenate(indices)
    starts = np.cumsum(np.concatenate(lengths))
    if starts[-1] <= np.iinfo(np.int32).max:  # scipy gives indices the type of the starts: 4 bytes rather than 8
        starts = starts.astype(np.int32)
    n_terms = int(index.max(initial=0)) + 1
    matrix = csr_array((np.concatenate(weights), index, starts), shape=(len(starts) - 1, n_terms))
    return matrix if width is None else matrix[:, :width] if n_terms >= width else _widened(matrix, width)


def _widened(matrix: csr_array, width: int) -> csr_array:
    return csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], width))


class SparseRetriever(Retriever):
    """Exact search by the inner product of sparse vectors.

    Memory: 8 bytes per weight of the chunks, twice that while the index is built, and about 150 MB for scores.

    Args:
        name: the retriever's name in rankings.
        queries: sparse vectors of queries.
        documents: sparse vectors of the chunks, shape (n_chunks, vocabulary).
    """

    def __init__(self, name: str, queries: EncodingStore, documents: csr_array) -> None:
        self.name = name
        self._queries, self._n_chunks = queries, documents.shape[0]
        self._chunks_of_terms = documents.T.tocsr()

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A chunk is a hit if its score is positive; a blank query has no hits."""
        k = min(depth, self._n_chunks)
        is_blank = np.array([not text.strip() for text in queries], np.bool_)
        blocks, size = [], max(1, BLOCK_CELLS // self._n_chunks)
        matrix = sparse_matrix([self._queries.encodings(hash_queries(queries))], self._chunks_of_terms.shape[0])
        for start in range(0, matrix.shape[0], size):
            blocks.append(_best_positive((matrix[start : start + size] @ self._chunks_of_terms).toarray(), k))
        best = stack_hits(blocks, k)
        hits = Hits(np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), np.nan, np.float32))
        hits.rows[~is_blank], hits.scores[~is_blank] = best.rows, best.scores
        return hits


def _best_positive(scores: Floats, k: int) -> Hits:
    """The `k` best columns of each row with a positive score."""
    floors = np.partition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k, None]
    query, row = np.nonzero((scores >= floors) & (scores > 0))
    return best_hits(query, rank_keys(scores[query, row], row), len(scores), k)


def encode_chunks(documents: EncodingStore, chunks: Iterable[HashedTexts]) -> csr_array:
    """Sparse vectors of all chunks; missing ones are encoded first."""
    return sparse_matrix(documents.encodings(texts) for texts in chunks)
