"""MaxSim: by hand, in blocks, and for pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.retrieve.encoders.encoding_store import EncodingStore
from darklode.pipeline.retrieve.retrievers import multi_vector
from darklode.pipeline.retrieve.retrievers.multi_vector import (
    TOKEN_VECTOR_ROWS,
    MultiVectorSearch,
    TokenVectors,
    encode_chunks,
    max_sim,
)
from darklode.pipeline.retrieve.retrievers.topk import fixed_point
from helpers.hash_encoder import content_hash

WORDS = {"red": [1.0, 0.0], "green": [0.0, 1.0], "both": [0.6, 0.8]}


def encode(texts: list[str]) -> pa.Table:
    vectors = [fixed_point(np.array([WORDS[word] for word in text.split()])) for text in texts]
    return pa.table(
        {
            "n_tokens": pa.array([len(tokens) for tokens in vectors], pa.int32()),
            "vectors": pa.array([tokens.tobytes() for tokens in vectors], pa.binary()),
        }
    )


def tokens(*texts: str) -> TokenVectors:
    return TokenVectors.from_rows(encode(list(texts)))


def test_it_sums_each_query_tokens_greatest_product() -> None:
    scores = max_sim(tokens("red green", "both"), tokens("red", "green both", "red green both"))
    np.testing.assert_allclose(scores, [[1, 1.6, 2], [0.6, 1, 1]])


def test_texts_are_taken_and_cut_into_blocks_whole() -> None:
    four = tokens("red", "green both", "red green both", "both")
    assert four.take(np.array([2, 0, 2])).starts.tolist() == [0, 3, 4, 7]
    np.testing.assert_array_equal(four.take(np.array([3])).vectors, tokens("both").vectors)
    for size in (1, 3, 4, 99):
        blocks = list(four.blocks(size))
        assert sum(len(block.starts) - 1 for _, block in blocks) == 4
        joined = np.hstack([max_sim(tokens("red green"), block) for _, block in blocks])
        np.testing.assert_array_equal(joined, max_sim(tokens("red green"), four))
    assert [first for first, _ in four.blocks(3)] == [0, 2, 3]
    empty = TokenVectors.from_rows(encode([]))
    assert list(empty.blocks(3)) == []


def test_a_search_of_all_chunks_is_the_same_in_any_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EncodingStore(KeyedStore(str(tmp_path), TOKEN_VECTOR_ROWS), "words", encode, lambda: 2)
    texts = ["red", "green both", "red green both", "both", "red green"]
    hashed = pa.array([content_hash(text) for text in texts]), pa.array(texts)

    def search() -> list[list[int]]:
        chunks = encode_chunks(
            store, [(column[:3] for column in hashed), (column[3:] for column in hashed)], tmp_path / "t"
        )  # type: ignore[list-item]
        hits = MultiVectorSearch("words", store, chunks).search(["red green", " ", "both"], 4)
        assert hits.scores[0, 0] == 2
        rows: list[list[int]] = hits.rows.tolist()
        return rows

    found = search()
    assert found == [[2, 4, 1, 3], [-1] * 4, [1, 2, 3, 4]]
    for name in ("BLOCK_CELLS", "_QUERIES_AT_ONCE", "_CHUNKS_AT_ONCE"):
        monkeypatch.setattr(multi_vector, name, 1)
    assert search() == found


def test_chunks_of_another_retriever_in_the_same_file_leave_mapped_vectors_as_they_are(tmp_path: Path) -> None:
    store = EncodingStore(KeyedStore(str(tmp_path), TOKEN_VECTOR_ROWS), "words", encode, lambda: 2)

    def encoded(text: str) -> TokenVectors:
        return encode_chunks(store, [(pa.array([content_hash(text)]), pa.array([text]))], tmp_path / "tokens.i16")

    first, second = encoded("red green"), encoded("both")
    np.testing.assert_array_equal(first.vectors, tokens("red green").vectors)
    np.testing.assert_array_equal(second.vectors, tokens("both").vectors)
