"""Where exact search reads from: arrays and the cache, block by block."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.retrieve.retrievers.blocks import ArrayVectors, CachedVectors, Vectors, read_ahead
from helpers.hash_encoder import content_hash
from helpers.vectors import cached, made


def test_a_zero_or_broken_vector_in_an_array_is_refused() -> None:
    for bad in (0, np.nan, np.inf):
        vectors = made(1, "smooth", 50)
        vectors[31] = bad
        with pytest.raises(ValueError, match="vector 31"):
            ArrayVectors(vectors)


def test_read_ahead_keeps_the_order_and_passes_errors_on() -> None:
    assert list(read_ahead(lambda start: start * 2, range(5))) == [0, 2, 4, 6, 8]
    assert list(read_ahead(lambda start: start, [])) == []

    def load(start: int) -> int:
        if start == 2:
            raise ArtifactError("gone")
        return start

    with pytest.raises(ArtifactError, match="gone"):
        list(read_ahead(load, range(5)))


def test_blocks_cover_all_positions_once(tmp_path: Path) -> None:
    names = [content_hash(str(number)) for number in range(57)]
    everything = made(1, "smooth", 57)
    shards = cached(tmp_path, "float32", everything, 10, names).open("model")
    assert shards is not None
    vectors: Vectors = CachedVectors(shards, names[::-1] + names[:3])
    for rows in (1, 4, 10, 13, 100):
        blocks = [(first, block.copy()) for first, block in vectors.blocks(rows)]
        assert [first for first, _ in blocks] == list(range(0, 57, rows))
        np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), everything)
    assert len(vectors) == 57
    assert vectors.n_chunks == 60
