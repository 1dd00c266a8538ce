"""What the embedded retrievers share: term counts, vectors on disk, and the seeds of feedback."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

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
