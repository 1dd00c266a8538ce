"""Exact search: against every score computed the plain way, for every block, shard and device."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.errors import ArtifactError, MissingPart
from darklode.pipeline.retrieve.retrievers import exact
from darklode.pipeline.retrieve.retrievers import exact as candidates
from darklode.pipeline.retrieve.retrievers.blocks import ArrayVectors, CachedVectors
from darklode.pipeline.retrieve.retrievers.exact import exact_search, product_error, search_cpu
from darklode.schemas.pooling import VectorSearchSettings
from helpers.hash_encoder import content_hash
from helpers.vectors import KINDS, SEARCHES, cached, made, plain, same

torch_search = pytest.importorskip(
    "darklode.pipeline.retrieve.retrievers.torch_search", reason="torch is not installed"
)

torch = pytest.importorskip("torch", reason="torch is not installed")

CPU = VectorSearchSettings(device="cpu")


@settings(deadline=None, max_examples=80)
@given(n_queries=st.integers(1, 5), cells=st.integers(1, 600), **SEARCHES)
def test_every_block_size_gives_the_plain_answer(
    seed: int, kind: str, n: int, n_queries: int, depth: int, cells: int
) -> None:
    vectors = made(seed, kind, n)
    queries = made(seed + 1, "smooth", n_queries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_BLOCK_SCORES", cells)
        ours = exact_search(queries, vectors, depth, CPU)
    same(ours, plain(queries, vectors, depth))


@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("length", [1e-43, 1e-38, 1e-6, 1e6, 1e32])
@pytest.mark.parametrize("longest", [1e-3, 1.0, 1e5])
def test_any_length_gives_the_plain_answer(
    engine: str, length: float, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "torch":
        monkeypatch.setattr(exact, "gpu", lambda _: "cpu")
    monkeypatch.setattr(candidates, "_BLOCK_SCORES", 600)
    monkeypatch.setattr(torch_search, "_MAX_BLOCK_ROWS", 150)
    vectors = made(1, "smooth", 500) * np.float32(longest)
    queries = (made(2, "smooth", 4).astype(np.float64) * length).astype(np.float32)
    same(exact_search(queries, vectors, 30, CPU), plain(queries, vectors, 30))


def test_scores_beyond_float32_are_refused() -> None:
    queries = made(2, "smooth", 3)
    queries[1] *= 3e38
    with pytest.raises(ValueError, match="query 1 could exceed float32"):
        exact_search(queries, made(1, "smooth", 50), 7, CPU)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(KINDS),
    shard_rows=st.integers(1, 60),
    cells=st.integers(4, 400),
    dtype=st.sampled_from(["float32", "float16"]),
    engine=st.sampled_from(["numpy", "torch"]),
)
def test_every_shard_size_gives_the_plain_answer_of_a_tenants_chunks(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    kind: str,
    shard_rows: int,
    cells: int,
    dtype: str,
    engine: str,
) -> None:
    random = np.random.default_rng(seed)
    everything = made(seed, kind, 80)
    names = [content_hash(str(number)) for number in range(80)]
    kept = cached(tmp_path_factory.mktemp("cache"), dtype, everything, shard_rows, names)
    chosen = random.integers(0, 80, 100)  # out of order, some absent, some several times
    shards = kept.open("model")
    assert shards is not None
    vectors = CachedVectors(shards, [names[number] for number in chosen], keep_mapped=int(random.integers(0, 2)) << 30)
    queries = made(seed + 1, "smooth", 4)
    expected = plain(queries, everything[chosen].astype(dtype), 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_BLOCK_SCORES", cells)
        patch.setattr(torch_search, "_MAX_BLOCK_ROWS", cells // 4)
        if engine == "torch":
            patch.setattr(exact, "gpu", lambda _: "cpu")
        same(exact_search(queries, vectors, 30, CPU), expected)


def test_a_chunk_without_a_vector_is_named(tmp_path: Path) -> None:
    names = [content_hash(str(number)) for number in range(3)]
    shards = cached(tmp_path, "float32", made(1, "smooth", 2), 10, names[:2]).open("model")
    assert shards is not None
    with pytest.raises(ArtifactError, match=f"1 of 3 chunks have no vector of model.*{names[2]}"):
        CachedVectors(shards, names)


def test_a_tenant_without_chunks_has_no_hits(tmp_path: Path) -> None:
    names = [content_hash("1")]
    shards = cached(tmp_path, "float32", made(1, "smooth", 1), 10, names).open("model")
    assert shards is not None
    hits = exact_search(made(2, "smooth", 3), CachedVectors(shards, []), 5, CPU)
    assert hits.rows.shape == hits.scores.shape == (3, 0)


def test_a_zero_query_finds_nothing_and_bad_ones_are_refused() -> None:
    vectors, queries = made(1, "smooth", 50), made(2, "smooth", 3)
    queries[1] = 0
    hits = exact_search(queries, vectors, 7, CPU)
    same(hits, plain(queries, vectors, 7))
    assert hits.rows[1].tolist() == [-1] * 7
    queries[2, 3] = np.nan
    with pytest.raises(ValueError, match="query 2"):
        exact_search(queries, vectors, 7, CPU)
    with pytest.raises(ValueError, match="do not fit"):
        exact_search(queries[:, :5], vectors, 7, CPU)
    assert exact_search(queries[:0], vectors, 7, CPU).rows.shape == (0, 7)


def test_little_memory_means_more_passes_and_the_same_answer() -> None:
    vectors, queries = made(1, "smooth", 4000), made(2, "smooth", 1500)
    little = VectorSearchSettings(device="cpu", max_memory_mb=1)
    assert 1500 * 20 * exact._BYTES_PER_HIT > 1 << 19
    same(exact_search(queries, vectors, 20, little), exact_search(queries, vectors, 20, CPU))


class Watched(ArrayVectors):
    """Counts the vectors that were scored."""

    taken = 0

    def take(self, positions: np.ndarray) -> np.ndarray:
        Watched.taken += len(positions)
        return super().take(positions)


def test_hardly_more_than_the_answer_is_scored() -> None:
    vectors, queries = made(1, "smooth", 20_000, 48), made(2, "smooth", 32, 48)
    Watched.taken = 0
    search_cpu(queries, Watched(vectors), 100, 1 << 28)
    assert 3200 <= Watched.taken <= 3300


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), dimensions=st.integers(1, 400))
def test_products_lie_within_their_error_bounds(seed: int, dimensions: int) -> None:
    queries, vectors = made(seed, "smooth", 2, dimensions), made(seed + 1, "smooth", 40, dimensions)
    true = plain(queries, vectors, 40)
    ours = np.take_along_axis((queries @ vectors.T), true.rows, axis=1).astype(np.float64)
    longest = ArrayVectors(vectors).longest
    assert (np.abs(ours - true.scores) <= product_error(queries, longest)[:, None]).all()
    for half in (torch.float16, torch.bfloat16):
        kept = [torch.from_numpy(each).to(half).float() for each in (queries, vectors)]
        rounded = (kept[0] @ kept[1].T).to(half).double().numpy()
        bound = torch_search.half_product_error(torch.from_numpy(queries), longest, half).numpy()
        assert (np.abs(np.take_along_axis(rounded, true.rows, axis=1) - true.scores) <= bound[:, None]).all()


def test_the_score_is_the_true_product_rounded() -> None:
    queries, vectors = made(1, "smooth", 3, 77), made(2, "smooth", 20, 77)
    hits = exact_search(queries, vectors, 20, CPU)
    for query, rows, scores in zip(queries, hits.rows, hits.scores, strict=True):
        for row, score in zip(rows, scores, strict=True):
            true = sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(query, vectors[row], strict=True))
            assert abs(Fraction(float(score)) - true) <= Fraction(2) ** -24 * abs(true) + Fraction(2) ** -48


def test_a_gpu_that_is_asked_for_and_absent_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert exact.gpu(VectorSearchSettings(device="auto")) is None
    with pytest.raises(MissingPart, match=r"vector_search\.device is cuda"):
        exact.gpu(VectorSearchSettings(device="cuda"))
