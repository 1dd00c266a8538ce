"""Approximate search: only when asked for, scored exactly, its recall measured."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.retrieve.retrievers import approximate
from darklode.pipeline.retrieve.retrievers.approximate import Approximate
from darklode.pipeline.retrieve.retrievers.blocks import ArrayVectors
from darklode.pipeline.retrieve.retrievers.exact import exact_search
from darklode.schemas.pooling import VectorSearchSettings

HNSW, IVF = (VectorSearchSettings.model_validate({"device": "cpu", "index": name}) for name in ("hnsw", "ivf"))


def made(seed: int, n: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((n, 16))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("settings", [HNSW, IVF], ids=["hnsw", "ivf"])
def test_it_says_how_much_of_the_exact_answer_it_finds(settings: VectorSearchSettings) -> None:
    pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    vectors, queries = ArrayVectors(made(1, 4000)), made(2, 100)
    queries[5] = 0
    ours = Approximate(vectors, settings)
    hits, exact = ours.search(queries, 60), exact_search(queries, vectors, 60, settings)
    assert ours.recall is not None
    assert (ours.recall.queries, ours.recall.depth, ours.recall.expected) == (64, 60, 64 * 60)
    chosen = np.delete(np.arange(100), 5)[np.linspace(0, 98, 64).astype(int)]
    common = sum(len(set(hits.rows[at]) & set(exact.rows[at])) for at in chosen)
    assert ours.recall.n_found == common
    assert 0.5 < ours.recall.share <= 1
    for row, score in zip(hits.rows[0], hits.scores[0], strict=True):
        assert row not in exact.rows[0] or score == exact.scores[0][exact.rows[0] == row][0]
    assert (np.diff(hits.scores[0]) <= 0).all()
    assert hits.rows[5].tolist() == [-1] * 60
    again = Approximate(vectors, settings).search(queries, 60)
    np.testing.assert_array_equal(again.rows, hits.rows)


def test_fewer_than_asked_for_are_filled_up() -> None:
    pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    vectors = ArrayVectors(made(1, 500))
    ours = Approximate(vectors, IVF)
    ours._index.nprobe = 1
    hits = ours.search(made(2, 3), 400)
    absent = hits.rows < 0
    assert absent.any()
    np.testing.assert_array_equal(absent, np.isnan(hits.scores))
    assert ours.recall is not None
    assert ours.recall.share < 1


def test_a_missing_faiss_is_said_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> ModuleType:
        raise ImportError(name)

    monkeypatch.setattr(approximate, "importlib", ModuleType("importlib"))
    monkeypatch.setattr(approximate.importlib, "import_module", absent, raising=False)
    with pytest.raises(MissingPart, match="pip install faiss-cpu"):
        Approximate(ArrayVectors(made(1, 5)), HNSW)
    assert importlib.import_module is not absent
