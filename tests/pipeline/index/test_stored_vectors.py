"""Vectors of a byte a number: near the true products, from whichever file."""

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.index.stored_vectors import StoredBlocks, pack_vectors
from helpers.indexed import clustered


def test_products_are_near_whichever_file_a_vector_lies_in(tmp_path: Path) -> None:
    vectors, places = clustered(200), []
    for first, last in ((0, 120), (120, 200)):
        (tmp_path / f"{first}.npy").write_bytes(
            pack_vectors([vectors[first : last - 9], vectors[last - 9 : last]], last - first, 32)
        )
        places.append((first, tmp_path / f"{first}.npy"))
    numbers = np.array([[0, 119, 120, -1], [199, 5, 130, 64]])
    queries = clustered(2, seed=1)
    found = StoredBlocks(reversed(places)).scores(queries, numbers)
    true = np.einsum("qd,qkd->qk", queries, vectors[numbers])
    assert found[0, 3] == -np.inf
    np.testing.assert_allclose(found[numbers >= 0], true[numbers >= 0], atol=0.01)
    every = StoredBlocks(places).all_scores(queries, numbers[1])
    np.testing.assert_allclose(every[1], found[1], atol=1e-6)
    of_one = StoredBlocks(places[:1]).scores(queries[:1], numbers[:1, :2])
    assert np.load(places[0][1])["numbers"].shape == (120, 32)
    np.testing.assert_allclose(of_one, found[:1, :2], atol=1e-6)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "0.npy").write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match=r"0\.npy is damaged"):
        StoredBlocks([(0, tmp_path / "0.npy")])
