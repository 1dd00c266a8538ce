"""Exact search: against every score computed the plain way, for every block, shard and device."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hash_encoder import content_hash
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.encoders import append
from pipeline.encoders.cache import EmbeddingCache
from pipeline.errors import ArtifactError, MissingPart
from pipeline.retrievers import candidates, exact
from pipeline.retrievers.blocks import ArrayVectors, CachedVectors, Vectors, read_ahead
from pipeline.retrievers.candidates import product_error, search_cpu
from pipeline.retrievers.exact import exact_search
from pipeline.retrievers.port import Hits
from pipeline.retrievers.scores import tree_sum
from schemas.settings import VectorSettings

torch_search = pytest.importorskip("pipeline.retrievers.torch_search", reason="torch is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

CPU = VectorSettings(device="cpu")
KINDS = ("smooth", "ties", "near ties", "ascending", "equal")


def made(seed: int, kind: str, n: int, dimensions: int = 24) -> np.ndarray:
    """Vectors that are easy or hard to rank."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((n, dimensions))
    if kind == "ties":
        vectors = random.integers(0, 2, (n, dimensions)) + 0.0
        vectors[:, 0] = 1
    if kind == "near ties":
        vectors = vectors[0] + 1e-7 * vectors
    if kind == "ascending":
        vectors = vectors[0] + np.linspace(1, 0, n)[:, None] * random.standard_normal(dimensions)
    if kind == "equal":
        vectors[:] = vectors[0]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def plain(queries: np.ndarray, vectors: np.ndarray, depth: int) -> Hits:
    """Every score by the definition, sorted."""
    k = min(depth, len(vectors))
    rows, scores = np.full((len(queries), k), -1), np.full((len(queries), k), np.nan, dtype=np.float32)
    for at, query in enumerate(queries):
        if query.any():
            every = tree_sum(vectors.astype(np.float64) * query).astype(np.float32)
            rows[at] = np.lexsort((np.arange(len(every)), -every))[:k]
            scores[at] = every[rows[at]]
    return Hits(rows, scores)


def same(ours: Hits, theirs: Hits) -> None:
    np.testing.assert_array_equal(ours.rows, theirs.rows)
    np.testing.assert_array_equal(ours.scores, theirs.scores)


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 300),
    n_queries=st.integers(1, 5),
    depth=st.integers(1, 60),
    cells=st.integers(1, 600),
)
def test_every_block_size_gives_the_plain_answer(
    seed: int, kind: str, n: int, n_queries: int, depth: int, cells: int
) -> None:
    vectors = made(seed, kind, n)
    queries = made(seed + 1, "smooth", n_queries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_CELLS", cells)
        ours = exact_search(queries, vectors, depth, CPU)
    same(ours, plain(queries, vectors, depth))


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 300),
    depth=st.integers(1, 60),
    block=st.integers(1, 120),
    pairs=st.integers(1, 200),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
)
def test_torch_gives_the_plain_answer(
    seed: int, kind: str, n: int, depth: int, block: int, pairs: int, dtype: str
) -> None:
    kept = torch.from_numpy(made(seed, kind, n)).to(getattr(torch, dtype))
    queries = made(seed + 1, "smooth", 4)
    expected = plain(queries, kept.float().numpy(), depth)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    k = min(depth, n)
    best = torch_search.DeviceTopK(torch.from_numpy(queries).to(device), k, 1.01, pairs * 24 * 32)
    for first in range(0, n, block):
        part = kept[first : first + block]
        best.update(part.to(device), torch.arange(first, first + len(part), device=device))
    scores, rows = best.best()
    same(Hits(rows, scores), expected)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_devices_agree_on_a_larger_search(device: str, dtype: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("this machine has no GPU")
    vectors = made(3, "smooth", 6000, 96).astype(dtype)
    vectors[5000:] = vectors[:1000]
    queries = made(4, "smooth", 40, 96)
    source = ArrayVectors(vectors)
    scores, rows = torch_search.search_torch(queries, source, 420, device, 8 << 20)
    same(Hits(rows, scores), exact_search(queries, source, 420, CPU))


@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("length", [1e-43, 1e-38, 1e-6, 1e6, 1e32])
@pytest.mark.parametrize("longest", [1e-3, 1.0, 1e5])
def test_any_length_gives_the_plain_answer(
    engine: str, length: float, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "torch":
        monkeypatch.setattr(exact, "gpu", lambda _: "cpu")
    monkeypatch.setattr(candidates, "_CELLS", 600)
    monkeypatch.setattr(torch_search, "_MOST_ROWS", 150)
    vectors = made(1, "smooth", 500) * np.float32(longest)
    queries = (made(2, "smooth", 4).astype(np.float64) * length).astype(np.float32)
    same(exact_search(queries, vectors, 30, CPU), plain(queries, vectors, 30))


def test_scores_beyond_float32_are_refused() -> None:
    queries = made(2, "smooth", 3)
    queries[1] *= 3e38
    with pytest.raises(ValueError, match="query 1 could exceed float32"):
        exact_search(queries, made(1, "smooth", 50), 7, CPU)


def cached(root: Path, dtype: str, vectors: np.ndarray, shard_rows: int, names: list[str]) -> EmbeddingCache:
    kept = EmbeddingCache(str(root), dtype)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append, "SHARD_BYTES", shard_rows * vectors.shape[1] * np.dtype(dtype).itemsize)
        kept.append("model", names, vectors)
    return kept


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
        patch.setattr(candidates, "_CELLS", cells)
        patch.setattr(torch_search, "_MOST_ROWS", cells // 4)
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


def test_a_zero_or_broken_vector_in_an_array_is_refused() -> None:
    for bad in (0, np.nan, np.inf):
        vectors = made(1, "smooth", 50)
        vectors[31] = bad
        with pytest.raises(ValueError, match="vector 31"):
            ArrayVectors(vectors)


def test_little_memory_means_more_passes_and_the_same_answer() -> None:
    vectors, queries = made(1, "smooth", 4000), made(2, "smooth", 1500)
    little = VectorSettings(device="cpu", memory_mb=1)
    assert 1500 * 20 * exact._SURVIVOR_BYTES > 1 << 19
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
        bound = torch_search.product_error(torch.from_numpy(queries), longest, half).numpy()
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
    assert exact.gpu(VectorSettings(device="auto")) is None
    with pytest.raises(MissingPart, match=r"vectors\.device is cuda"):
        exact.gpu(VectorSettings(device="cuda"))


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
