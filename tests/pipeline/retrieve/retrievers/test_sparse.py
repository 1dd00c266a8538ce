"""Search over sparse vectors: products, blocks of queries, vocabularies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.retrieve.encoders.encoding_store import EncodingStore
from darklode.pipeline.retrieve.retrievers import sparse
from darklode.pipeline.retrieve.retrievers.sparse import (
    SPARSE_VECTOR_ROWS,
    SparseRetriever,
    encode_chunks,
    sparse_matrix,
)
from helpers.hash_encoder import content_hash

VOCABULARY = ["red", "green", "blue", "grey"]


def encode(texts: list[str]) -> pa.Table:
    """A weight for each word of the vocabulary: how often it occurs."""
    counts = [{VOCABULARY.index(word): float(text.split().count(word)) for word in text.split()} for text in texts]
    indices = [sorted(count) for count in counts]
    weights = [[count[index] for index in row] for count, row in zip(counts, indices, strict=True)]
    return pa.table(
        {"indices": pa.array(indices, pa.list_(pa.int32())), "weights": pa.array(weights, pa.list_(pa.float32()))}
    )


@pytest.fixture
def store(tmp_path: Path) -> EncodingStore:
    return EncodingStore(KeyedStore(str(tmp_path), SPARSE_VECTOR_ROWS), "words", encode, lambda: 2)


def retriever(store: EncodingStore, *texts: str) -> SparseRetriever:
    hashed = pa.array([content_hash(text) for text in texts]), pa.array(texts)
    batches = [(hashed[0][:2], hashed[1][:2]), (hashed[0][2:], hashed[1][2:])]
    return SparseRetriever("words", store, encode_chunks(store, batches))


def test_the_matrix_has_a_row_for_each_text() -> None:
    matrix = sparse_matrix([encode(["red red blue"]), encode(["", "green"])])
    assert matrix.toarray().tolist() == [[2, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert sparse_matrix([encode(["blue"])], 2).toarray().tolist() == [[0, 0]]
    assert sparse_matrix([encode(["red"])], 3).toarray().tolist() == [[1, 0, 0]]
    assert sparse_matrix([], 3).shape == (0, 3)


def test_hits_are_chunks_with_a_positive_product_and_ties_rank_by_row(
    store: EncodingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = retriever(store, "red blue", "green", "red red", "blue red", "green")
    queries = ["red", "", "grey", "blue green", "red"]
    hits = ours.search(queries, 3)
    assert hits.rows.tolist() == [[2, 0, 3], [-1] * 3, [-1] * 3, [0, 1, 3], [2, 0, 3]]
    assert hits.scores[0].tolist() == [2, 1, 1]
    assert ours.search(queries, 99).rows.shape == (5, 5)
    assert ours.search([], 3).rows.shape == (0, 3)
    monkeypatch.setattr(sparse, "BLOCK_CELLS", 1)
    np.testing.assert_array_equal(ours.search(queries, 3).rows, hits.rows)
