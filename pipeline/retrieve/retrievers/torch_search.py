"""Exact search with torch on one GPU: half-precision products choose with a proven margin, float64 sums decide.

The same code runs on torch's CPU device, which is how it is tested where there is no GPU.
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

_MOST_ROWS = 1 << 16
_ACCUMULATE = 2.0**-22
"""Tensor cores add in float32 without its rounding: four times its unit roundoff is granted for each addition."""

_LONGEST = 2.0**15
"""Vectors up to this length, and their products with queries of length 1, fit into float16."""

_LEAST = 2.0**-149
"""Least float32 above 0: what the rounding of a score may move at least."""

_NOTHING = torch.iinfo(torch.int64).min
_ROW_BITS = 32  # as in `topk`, in signed numbers: torch has no unsigned ones that it can sort
_LAST_ROW = 0xFFFFFFFF


def search_torch(
    queries: NDArray[np.float32], vectors: Vectors, k: int, device: str, memory: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `k` best vectors of each query: scores and first chunk rows, shape (n_queries, k), best first.

    Args:
        queries: shape (n_queries, dimensions), none zero.
        vectors: at least `k`.
        k: at least 1.
        device: as torch names it.
        memory: bytes of the device that vectors and scores may take, roughly.
    """
    device_top = DeviceTopK(torch.from_numpy(queries).to(device), k, vectors.longest, memory // 4)
    per_row = 16 * vectors.dimensions + 16 * len(queries)
    rows = max(1, min(_MOST_ROWS, memory // 2 // per_row))
    with torch.inference_mode(), full_accumulation():
        for block, ties in _uploads(vectors, rows, torch.device(device)):
            device_top.update(block, ties)
    return device_top.best()


@contextmanager
def full_accumulation() -> Iterator[None]:
    """Keeps half-precision products from being added up in half precision, which the margin does not cover."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction
    matmul.allow_fp16_reduced_precision_reduction = matmul.allow_bf16_reduced_precision_reduction = False
    try:
        yield
    finally:
        matmul.allow_fp16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction = before


def _uploads(vectors: Vectors, rows: int, device: torch.device) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Blocks on the device with their vectors' first chunk rows; the next is copied while this one is in use."""
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
    """Copies blocks through two pinned buffers on a stream of its own."""

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
    """The `k` best of each query over blocks that lie on the device, in any order.

    After each block every query holds its `k` best by score. A vector of a block is scored when its half-precision
    product comes within the error bound of the worst of them, so that none is missed.

    Args:
        queries: shape (n_queries, dimensions), float32, on the device.
        k: at least 1.
        longest: no vector's Euclidean length exceeds it.
        memory: bytes that scoring pairs may take.
    """

    def __init__(self, queries: torch.Tensor, k: int, longest: float, memory: int) -> None:
        self._k, self._exact = k, queries.double()
        self._scale = torch.exp2(-self._exact.norm(dim=1).log2().ceil())
        self._scaled = (self._exact * self._scale[:, None]).float()  # half precision has little room for lengths
        self._longest = longest
        self._pairs = max(1, memory // (queries.shape[1] * 32))
        self._keys = torch.full((len(queries), k), _NOTHING, dtype=torch.int64, device=queries.device)

    def update(self, vectors: torch.Tensor, ties: torch.Tensor) -> None:
        """Take in vectors, shape (b, dimensions), float32, float16 or bfloat16, and their chunk rows (below 2**32)."""
        wide = vectors.dtype == torch.bfloat16 or self._longest > _LONGEST
        half = torch.bfloat16 if wide else torch.float16
        products = _products(self._scaled.to(half), vectors.to(half))
        hits = products >= self._floor(products, half)[:, None]
        query, row = hits.nonzero(as_tuple=True)
        for first in range(0, len(query), self._pairs):
            part = slice(first, first + self._pairs)
            self._merge(query[part], _rank_keys(self._scores(query[part], vectors[row[part]]), ties[row[part]]))

    def best(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and chunk rows of the `k` best, best first."""
        ordered = self._keys.sort(dim=1, descending=True).values.cpu().numpy()
        return from_rank_keys(ordered.view(np.uint64) ^ np.uint64(1 << 63))

    def _floor(self, products: torch.Tensor, half: torch.dtype) -> torch.Tensor:
        """What a product of the scaled queries must reach, shape (n_queries,), rounded down in `half`."""
        error = half_product_error(self._scaled, self._longest, half) + self._scale * _LEAST
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
        products = vectors.double().mul_(self._exact[query])
        width = products.shape[1]
        while width > 1:  # as `topk.tree_sum`
            half = width // 2
            products[:, :half] += products[:, width - half : width]
            width -= half
        return products[:, 0].float()

    def _merge(self, query: torch.Tensor, keys: torch.Tensor) -> None:
        counts = torch.bincount(query, minlength=len(self._keys))
        within = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
        max_count = int(counts.max())
        for first in range(0, max_count, 4 * self._k):  # ties without end come in slices
            part = (within >= first) & (within < first + 4 * self._k)
            width = self._k + min(4 * self._k, max_count - first)
            wide = torch.full((len(self._keys), width), _NOTHING, dtype=torch.int64, device=query.device)
            wide[:, : self._k] = self._keys
            wide[query[part], within[part] - first + self._k] = keys[part]
            self._keys = wide.topk(self._k, dim=1, sorted=False).values


def half_product_error(queries: torch.Tensor, longest: float, half: torch.dtype) -> torch.Tensor:
    """How far a product of vectors rounded to `half`, itself rounded, can lie from the score; shape (n_queries,).

    Numbers below the smallest normal one are rounded by at most `tiny` · eps.
    """
    facts = torch.finfo(half)
    relative = relative_error(queries.shape[1], _ACCUMULATE, facts.eps / 2)
    absolute = facts.tiny * facts.eps * queries.shape[1] ** 0.5
    lengths = queries.double().norm(dim=1)
    bound: torch.Tensor = lengths * longest * relative + 2 * absolute * (lengths + longest + 1)
    return bound


def _products(queries: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    if queries.is_cuda:
        return torch.mm(queries, vectors.T)
    return torch.mm(queries.float(), vectors.float().T).to(queries.dtype)  # torch's CPU may add up in half precision


def _rank_keys(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """As `topk.rank_keys`, as signed numbers: the top bit is turned."""
    bits = (scores + 0.0).view(torch.int32).long()
    ordered = torch.where(bits < 0, -bits - (1 << 31) - 1, bits)
    return (ordered << _ROW_BITS) + (_LAST_ROW - rows)


def _scores_of(keys: torch.Tensor) -> torch.Tensor:
    ordered = keys >> _ROW_BITS
    bits = torch.where(ordered < 0, -ordered - (1 << 31) - 1, ordered).int()
    scores: torch.Tensor = torch.where(keys == _NOTHING, -torch.inf, bits.view(torch.float32))
    return scores
