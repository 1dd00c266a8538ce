"""Exact search with torch: the plain answer on the CPU, and on a GPU where there is one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.retrieve.retrievers.blocks import ArrayVectors
from darklode.pipeline.retrieve.retrievers.exact import exact_search
from darklode.pipeline.retrieve.retrievers.port import Hits
from darklode.schemas.pooling import VectorSearchSettings
from helpers.vectors import SEARCHES, made, plain, same

torch_search = pytest.importorskip(
    "darklode.pipeline.retrieve.retrievers.torch_search", reason="torch is not installed"
)

torch = pytest.importorskip("torch", reason="torch is not installed")

CPU = VectorSearchSettings(device="cpu")


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    block=st.integers(1, 120),
    pairs=st.integers(1, 200),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    **SEARCHES,
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
