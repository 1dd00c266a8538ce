"""Exact search with torch on one GPU.

Half-precision products select candidates with a proven error bound; float64 scores of the candidates decide. The same
code also runs on torch's CPU device, for tests without a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from darklode.pipeline.retrieve.retrievers.blocks import Vectors, read_ahead
from darklode.pipeline.retrieve.retrievers.topk import from_rank_keys, relative_error

_MAX_BLOCK_ROWS = 1 << 16  # maximum number of vectors per block
_ADDITION_ERROR = 2.0**-22
"""Assumed error per addition: tensor cores truncate float32 sums, so 4 times its unit roundoff is assumed."""

_MAX_FLOAT16_LENGTH = 2.0**15
"""Maximum length of vectors whose products with queries of length 1 fit into float16; longer ones use bfloat16."""

_SMALLEST_FLOAT32 = 2.0**-149
"""Smallest positive float32: the rounding error of a score that underflows."""

_NO_HIT = torch.iinfo(torch.int64).min  # key of a missing hit
_ROW_BITS = 32  # keys as in `topk`, but signed, because torch cannot sort unsigned integers
_MAX_ROW = 0xFFFFFFFF


def search_torch(
    queries: NDArray[np.float32], vectors: Vectors, k: int, device: str, memory: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `k` best vectors of each query: scores and first chunk rows, both of shape (n_queries, k), best first.

    Args:
        queries: shape (n_queries, dimensions), no zero vectors.
        vectors: at least `k` vectors.
        k: number of vectors per query, at least 1.
        device: torch device name.
        memory: approximate bytes of device memory for vectors and scores.
    """
    device_top = DeviceTopK(torch.from_numpy(queries).to(device), k, vectors.longest, memory // 4)
    per_row = 16 * vectors.dimensions + 16 * len(queries)
    rows = max(1, min(_MAX_BLOCK_ROWS, memory // 2 // per_row))
    with torch.inference_mode(), full_accumulation():
        for block, ties in _uploads(vectors, rows, torch.device(device)):
            device_top.update(block, ties)
    return device_top.best()


@contextmanager
def full_accumulation() -> Iterator[None]:
    """Forbid sums of half-precision products in half precision, which the error bound does not cover."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction
    matmul.allow_fp16_reduced_precision_reduction = matmul.allow_bf16_reduced_precision_reduction = False
    try:
        yield
    finally:
        matmul.allow_fp16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction = before


def _uploads(vectors: Vectors, rows: int, device: torch.device) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield blocks on the device with their vectors' first chunk rows; the next block is copied meanwhile."""
    firsts = torch.from_numpy(vectors.first_rows)
    blocks = vectors.blocks(rows)
    if device.type != "cuda":
        for first, block in blocks:
            yield torch.tensor(block), firsts[first : first + len(block)]
        return
    upload = _Upload(device, rows, vectors.dimensions)
    main = torch.cuda.current_stream(device)

    def load(_: int) -> tuple[torch.Tensor, torch.Tensor, torch.cuda.Event]:
        first, block = next(blocks)
        return upload(block, firsts[first : first + len(block)])

    for copy, ties, ready in read_ahead(load, range(0, len(vectors), rows)):
        main.wait_event(ready)
        copy.record_stream(main)
        ties.record_stream(main)
        yield copy, ties


class _Upload:
    """Copies blocks to the device through two pinned buffers, which take turns, on a separate stream."""

    def __init__(self, device: torch.device, rows: int, dimensions: int) -> None:
        self._device, self._shape = device, (rows, dimensions)
        cuda: Any = torch.cuda
        self._stream = cuda.Stream(device)
        self._buffers: list[torch.Tensor] = []
        self._free = [cuda.Event(), cuda.Event()]
        self._turn = 0

    def __call__(
        self, block: NDArray[np.generic], ties: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.cuda.Event]:
        if not self._buffers:
            dtype = torch.float16 if block.dtype == np.float16 else torch.float32
            self._buffers = [torch.empty(self._shape, dtype=dtype, pin_memory=True) for _ in range(2)]
        self._turn = 1 - self._turn
        free, buffer = self._free[self._turn], self._buffers[self._turn][: len(block)]
        free.synchronize()
        np.copyto(buffer.numpy(), block)
        with torch.cuda.stream(self._stream):
            copies = buffer.to(self._device, non_blocking=True), ties.to(self._device)
            free.record(self._stream)
        return *copies, free


class DeviceTopK:
    """The `k` best vectors of each query, updated with blocks on the device in any order.

    A vector is scored exactly if its half-precision product is within the error bound of the query's current k-th best
    score, so none of the best is missed.

    Args:
        queries: shape (n_queries, dimensions), float32, on the device.
        k: vectors per query, at least 1.
        longest: upper bound of the vectors' Euclidean lengths.
        memory: bytes for exact scores of candidates.
    """

    def __init__(self, queries: torch.Tensor, k: int, longest: float, memory: int) -> None:
        self._k, self._exact = k, queries.double()
        self._scale = torch.exp2(-self._exact.norm(dim=1).log2().ceil())
        self._scaled = (self._exact * self._scale[:, None]).float()  # of length at most 1, against overflow
        self._longest = longest
        self._pairs = max(1, memory // (queries.shape[1] * 32))
        self._keys = torch.full((len(queries), k), _NO_HIT, dtype=torch.int64, device=queries.device)

    def update(self, vectors: torch.Tensor, ties: torch.Tensor) -> None:
        """Merge a block of vectors.

        Args:
            vectors: shape (b, dimensions), float32, float16 or bfloat16, on the device.
            ties: the vectors' first chunk rows, below 2**32, by which equal scores are ranked.
        """
        needs_bfloat16 = vectors.dtype == torch.bfloat16 or self._longest > _MAX_FLOAT16_LENGTH
        half = torch.bfloat16 if needs_bfloat16 else torch.float16
        products = _products(self._scaled.to(half), vectors.to(half))
        hits = products >= self._floor(products, half)[:, None]
        query, row = hits.nonzero(as_tuple=True)
        for first in range(0, len(query), self._pairs):
            part = slice(first, first + self._pairs)
            self._merge(query[part], _rank_keys(self._scores(query[part], vectors[row[part]]), ties[row[part]]))

    def best(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and first chunk rows of the `k` best vectors, best first."""
        ordered = self._keys.sort(dim=1, descending=True).values.cpu().numpy()
        return from_rank_keys(ordered.view(np.uint64) ^ np.uint64(1 << 63))

    def _floor(self, products: torch.Tensor, half: torch.dtype) -> torch.Tensor:
        """Minimum product of the scaled queries for a candidate, shape (n_queries,), rounded down to `half`."""
        error = half_product_error(self._scaled, self._longest, half) + self._scale * _SMALLEST_FLOAT32
        floor_scores = _scores_of(self._keys.amin(dim=1)).double() * self._scale - error
        count = products.shape[1]
        if count >= self._k and bool(floor_scores.isneginf().any()):
            size = max(1, count // (4 * self._k))
            maxima = products[:, : count // size * size].reshape(len(products), -1, size).amax(dim=2)
            floor_scores = torch.maximum(floor_scores, maxima.topk(self._k, dim=1).values[:, -1].double() - 2 * error)
        floor = floor_scores.to(half)
        return torch.where(
            floor.double() > floor_scores, torch.nextafter(floor, torch.full_like(floor, -torch.inf)), floor
        )

    def _scores(self, query: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """Exact scores of pairs, equal to those of `topk.score_pairs`."""
        products = vectors.double().mul_(self._exact[query])
        width = products.shape[1]
        while width > 1:  # the order of `topk.tree_sum`
            half = width // 2
            products[:, :half] += products[:, width - half : width]
            width -= half
        return products[:, 0].float()

    def _merge(self, query: torch.Tensor, keys: torch.Tensor) -> None:
        """Merge the keys of pairs, sorted by query, into the `k` best of each query."""
        counts = torch.bincount(query, minlength=len(self._keys))
        within = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
        max_count = int(counts.max())
        for first in range(0, max_count, 4 * self._k):  # in slices, because there may be very many ties
            part = (within >= first) & (within < first + 4 * self._k)
            width = self._k + min(4 * self._k, max_count - first)
            merged = torch.full((len(self._keys), width), _NO_HIT, dtype=torch.int64, device=query.device)
            merged[:, : self._k] = self._keys
            merged[query[part], within[part] - first + self._k] = keys[part]
            self._keys = merged.topk(self._k, dim=1, sorted=False).values


def half_product_error(queries: torch.Tensor, longest: float, half: torch.dtype) -> torch.Tensor:
    """Bound on the difference between a product in `half` precision and the score, shape (n_queries,).

    Covers the rounding of both vectors and of the product. Subnormal numbers have an absolute error of at most
    `tiny` · eps.
    """
    limits = torch.finfo(half)
    relative = relative_error(queries.shape[1], _ADDITION_ERROR, limits.eps / 2)
    absolute = limits.tiny * limits.eps * queries.shape[1] ** 0.5
    lengths = queries.double().norm(dim=1)
    bound: torch.Tensor = lengths * longest * relative + 2 * absolute * (lengths + longest + 1)
    return bound


def _products(queries: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Inner products in half precision, accumulated in float32."""
    if queries.is_cuda:
        return torch.mm(queries, vectors.T)
    return torch.mm(queries.float(), vectors.float().T).to(queries.dtype)  # torch's CPU may add up in half precision


def _rank_keys(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """`topk.rank_keys` as signed integers: the top bit is flipped."""
    bits = (scores + 0.0).view(torch.int32).long()
    ordered = torch.where(bits < 0, -bits - (1 << 31) - 1, bits)
    return (ordered << _ROW_BITS) + (_MAX_ROW - rows)


def _scores_of(keys: torch.Tensor) -> torch.Tensor:
    """Scores of `_rank_keys`; -inf for missing hits."""
    ordered = keys >> _ROW_BITS
    bits = torch.where(ordered < 0, -ordered - (1 << 31) - 1, ordered).int()
    scores: torch.Tensor = torch.where(keys == _NO_HIT, -torch.inf, bits.view(torch.float32))
    return scores
