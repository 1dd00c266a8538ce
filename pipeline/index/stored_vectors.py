"""Vectors quantized to one byte per dimension, for rescoring candidates; files are memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Floats, Ints

INT8_MAX = 127
ROWS_PER_BLOCK = 1 << 12
"""Vectors of an exact search in memory at a time: they fit into the processor's cache."""

SCALE_BYTES = 4
"""Bytes of the float32 scale before each row's int8 values."""


def pack_vectors(blocks: Iterable[Floats], rows: int, dimensions: int) -> memoryview:
    """A NumPy file of quantized vectors: int8 values from -127 to 127 and a float32 scale per row.

    Args:
        blocks: arrays of shape (b, dimensions).
        rows: total number of vectors.
        dimensions: dimensions of a vector.
    """
    row_dtype, header = _row_dtype(dimensions), BytesIO()
    header_fields = {"descr": np.lib.format.dtype_to_descr(row_dtype), "fortran_order": False, "shape": (rows,)}
    np.lib.format.write_array_header_1_0(header, header_fields)
    file, start = bytearray(header.tell() + rows * row_dtype.itemsize), 0
    file[: header.tell()] = header.getvalue()
    out = np.frombuffer(file, row_dtype, rows, header.tell())
    for vectors in blocks:
        longest = np.maximum(np.abs(vectors).max(axis=1), np.finfo(np.float32).tiny)
        rows_out = out[start : start + len(vectors)]
        rows_out["numbers"] = np.rint(vectors * (INT8_MAX / longest)[:, None])
        rows_out["unit"] = longest / INT8_MAX
        start += len(vectors)
    return memoryview(file)


def _row_dtype(dimensions: int) -> Any:
    return np.dtype([("unit", "<f4"), ("numbers", "i1", (dimensions,))])


class StoredBlocks:
    """The files of stored vectors of an index.

    Args:
        files: number of the first vector and path of each file.

    Raises:
        ArtifactError: a file is damaged.
    """

    def __init__(self, files: Iterable[tuple[int, Path]]) -> None:
        ordered = sorted(files)
        self._firsts = np.array([first for first, _ in ordered], np.int64)
        self._files = [_map_file(path) for _, path in ordered]

    def scores(self, queries: Floats, numbers: Ints) -> Floats:
        """Inner products of queries and candidates, shape of `numbers`; minus infinity for -1.

        Args:
            queries: shape (n_queries, dimensions).
            numbers: shape (n_queries, candidates).
        """
        scores_out = np.full(numbers.shape, -np.inf, np.float32)
        for query, query_numbers, scores in zip(queries, numbers, scores_out, strict=True):
            rows = self._gather_rows(query_numbers)
            units = rows[:, :SCALE_BYTES].copy().view("<f4")[:, 0]
            scores[:] = rows[:, SCALE_BYTES:].view(np.int8).astype(np.float32) @ query * units
        scores_out[numbers < 0] = -np.inf
        return scores_out

    def all_scores(self, queries: Floats, numbers: Ints) -> Floats:
        """Inner products of all queries with the same vectors, shape (n_queries, len(numbers)).

        Args:
            queries: shape (n_queries, dimensions).
            numbers: numbers of stored vectors.
        """
        scores = np.empty((len(queries), len(numbers)), np.float32)
        for start in range(0, len(numbers), ROWS_PER_BLOCK):
            rows = self._gather_rows(numbers[start : start + ROWS_PER_BLOCK])
            units = rows[:, :SCALE_BYTES].copy().view("<f4")[:, 0]
            vectors = rows[:, SCALE_BYTES:].view(np.int8).astype(np.float32)
            scores[:, start : start + len(rows)] = queries @ vectors.T * units
        return scores

    def _gather_rows(self, numbers: Ints) -> NDArray[np.uint8]:
        """Rows as raw bytes: gathering bytes is four times as fast as gathering structured records."""
        numbers = np.maximum(numbers, self._firsts[0])
        of_file = np.searchsorted(self._firsts, numbers, side="right") - 1
        files = np.flatnonzero(np.bincount(of_file))
        if len(files) == 1:
            return np.asarray(np.take(self._files[files[0]], numbers - self._firsts[files[0]], axis=0))
        out = np.empty((len(numbers), self._files[0].shape[1]), np.uint8)
        for file in files:
            in_file = np.flatnonzero(of_file == file)
            out[in_file] = np.take(self._files[file], numbers[in_file] - self._firsts[file], axis=0)
        return out


def _map_file(path: Path) -> NDArray[np.uint8]:
    """Map a file as rows of bytes: scale, then values."""
    try:
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise ArtifactError(f"{path} is damaged ({error}); build the index again with `darklode index`") from error
    return np.asarray(mapped).view(np.uint8).reshape(len(mapped), mapped.itemsize)
