"""The frozen side: each run's texts are searched by its own queries, and copies share a vector."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.train.data import vectors as vectors_module
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.pairs import PAIRS_STAGE, adaptation_pairs
from darklode.pipeline.train.data.vectors import concat_ranges
from darklode.pipeline.train.fit.batched_heads import StackedTrial, train_stacked
from darklode.schemas.adaptation import AdaptSettings
from helpers.adapted import base_for, build_to_adapt
from helpers.runs import execute

from ..conftest import QUICK, Adapted

SHORT = QUICK.model_copy(update={"max_steps": 60})
SMALL = {"train": 4, "validation": 2, "test": 2}


def test_a_query_finds_texts_of_its_own_run_alone(adapted: Adapted, tmp_path: Path) -> None:
    runs = [build_to_adapt(tmp_path / name, SMALL) for name in ("one", "two")]
    base, out = base_for(*runs, root=adapted.root), Run(str(tmp_path / "out"))
    execute(out, PAIRS_STAGE, lambda _tables, output: adaptation_pairs(base.sources, output, AdaptSettings()))
    frozen = base.open(out.tables())
    n = sum(SMALL.values()) * 3
    assert len(frozen) == 2 * n
    same = np.repeat(base.queries(["how badu"]), 2, axis=0)
    rows, scores = frozen.search(same, np.array([0, 1]), 5)
    assert (rows[0] < n).all()
    assert (rows[1] - n == rows[0]).all(), "both runs hold the same texts"
    assert (scores[0] == scores[1]).all()
    found = frozen.take(frozen.position_of[rows.reshape(-1)])
    np.testing.assert_allclose((found @ same[0]).reshape(2, 5), scores, atol=1e-6)


def test_nothing_is_encoded_twice(adapted: Adapted) -> None:
    before = {path: path.stat().st_mtime_ns for path in (adapted.root / "cache").rglob("*.vectors")}
    adapted.base.open(adapted.out.tables())
    assert before
    assert {path: path.stat().st_mtime_ns for path in (adapted.root / "cache").rglob("*.vectors")} == before


def test_the_order_in_which_a_cache_was_filled_changes_no_byte_of_training(adapted: Adapted, tmp_path: Path) -> None:
    tables = adapted.out.tables()
    id_, kept = adapted.base.encoder.encoder_id(), adapted.base.cache
    shards = EmbeddingCache(kept.root, kept.vector_dtype).open(id_)
    assert shards is not None
    hashes = tables.read("adaptation_texts")["content_hash"].unique()
    vectors = shards.take(shards.find(keys_of(hashes)))
    turned, cache = np.random.default_rng(0).permutation(len(hashes)), EmbeddingCache(str(tmp_path), kept.vector_dtype)
    for part in np.array_split(turned, 3):
        cache.append(id_, hashes.take(pa.array(part)), vectors[part])
    other = replace(adapted.base, cache=kept.model_copy(update={"root": str(tmp_path)}))
    ones, others = (
        train_stacked(
            [StackedTrial(Task.from_tables(tables, base.open(tables), same_document=False), 3e-3, 1, lambda *_: None)],
            SHORT,
        )[0].best_weights
        for base in (adapted.base, other)
    )
    assert any(values.any() for values in ones.values())
    assert {name: one.tobytes() for name, one in ones.items()} == {name: one.tobytes() for name, one in others.items()}


def test_vectors_that_stay_in_their_files_are_the_same(adapted: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = adapted.out.tables()
    held, wanted = adapted.base.open(tables), np.array([7, 0, 7, 100])
    monkeypatch.setattr(vectors_module, "MAX_CACHED_BYTES", 0)
    stored = adapted.base.open(tables)
    assert stored.take(wanted).tobytes() == held.take(wanted).tobytes()
    assert len(stored.take(wanted)) == 4


def test_near_finds_what_the_exact_search_finds(adapted: Adapted) -> None:
    tables = adapted.out.tables()
    frozen, asked = adapted.base.open(tables), adapted.base.queries(["how badu", "ask fegi"])
    query, rows = frozen.rows_of(frozen.nearest(asked, np.zeros(2), 8)[0])
    found, scores = frozen.search(asked, np.zeros(2), 8)
    products = np.einsum("ij,ij->i", frozen.take(frozen.position_of[rows]), asked[query])
    for number in (0, 1):
        np.testing.assert_allclose(products[query == number][:8], scores[number], atol=1e-6)
        assert found[number, 0] in rows[query == number][:2]


def test_a_query_of_no_index_is_near_to_nothing(adapted: Adapted) -> None:
    frozen = adapted.base.open(adapted.out.tables())
    positions, scores = frozen.nearest(adapted.base.queries(["how badu", "ask fegi"]), np.array([0, 7]), 3)
    assert (positions[0] >= 0).all()
    assert positions[1].tolist() == [-1, -1, -1]
    assert np.isnan(scores[1]).all()


def test_ranges_follow_one_another() -> None:
    assert concat_ranges(np.array([3, 5, 9]), np.array([5, 5, 10])).tolist() == [3, 4, 9]
