"""What the embedded retrievers share: term counts, vectors on disk, and the seeds of feedback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.retrieve.encoders.caching import HashedTexts
from darklode.pipeline.retrieve.retrievers.corpus import Corpus, Seeds, store_vectors
from darklode.pipeline.retrieve.retrievers.port import Hits


def test_a_wrong_number_of_chunks_is_an_error(tmp_path: Path) -> None:
    corpus = Corpus(lambda: iter([["wing"]]), 2, tmp_path)
    with pytest.raises(ValueError, match="n_chunks is 2, the batches held 1"):
        _ = corpus.terms


@pytest.mark.parametrize(("blocks", "message"), [((2, 2), "more than 3"), ((2,), "2 of 3")])
def test_vectors_must_be_complete(blocks: tuple[int, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        store_vectors((np.ones((n, 2)) for n in blocks), 3, 2, tmp_path / "vectors.npy")


class TwoBatches:
    """Five chunks in two batches; a hash is a text's letter."""

    def hashes(self) -> pa.StringArray:
        return pa.array(list("abcde"))

    def iterate_hashes(self) -> Iterator[HashedTexts]:
        yield pa.array(list("abc")), pa.array(["red", "green", "blue"])
        yield pa.array(list("de")), pa.array(["grey", "white"])


@pytest.mark.parametrize("rows", [[], [0], [1, 2, 3], [4]])
def test_texts_of_some_chunks_are_read_in_their_order(rows: list[int], tmp_path: Path) -> None:
    corpus = Corpus(lambda: iter([]), 5, tmp_path, hashed=TwoBatches())
    hashes, texts = corpus.hashed_texts(np.array(rows, np.int64))
    assert hashes.to_pylist() == ["abcde"[row] for row in rows]
    assert texts.to_pylist() == [["red", "green", "blue", "grey", "white"][row] for row in rows]


class Counted:
    """Finds the first chunk for every query, and counts its searches."""

    name = "counted"

    def __init__(self) -> None:
        self.searches = 0

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        self.searches += 1
        return Hits(np.zeros((len(queries), 1), np.int64), np.ones((len(queries), 1), np.float32))


def test_seeds_are_searched_for_once() -> None:
    source = Counted()
    seeds = Seeds(source)
    for queries, depth, searches in ((["a"], 1, 1), (["a"], 1, 1), (["b"], 1, 2), (["a"], 2, 3)):
        seeds.search(queries, depth)
        assert source.searches == searches
