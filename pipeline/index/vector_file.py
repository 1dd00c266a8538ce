"""Read files of vectors. Every row needs an id and a finite vector of the same length; errors name the row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.base.types import Floats

VECTORS_PER_BLOCK = 1 << 15
"""Vectors in memory at a time."""

Piece = tuple[pa.Array, pa.Array, Floats]


def read_numpy(path: Path, dtype: str) -> Iterator[Piece]:
    """Yield ids (row numbers), document ids and vectors of a .npy file.

    Args:
        path: the file.
        dtype: dtype of the embedding cache.

    Raises:
        InputError: it is not an array of vectors, or a vector is invalid.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise InputError(f"{path} is not a NumPy array: {error}") from error
    if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "fiu":
        raise InputError(f"{path}: expected numbers of shape (n, dimensions), got {array.dtype} of shape {array.shape}")
    digits = len(str(max(0, len(array) - 1)))
    for start in range(0, len(array), VECTORS_PER_BLOCK):
        with np.errstate(over="ignore"):
            block = np.asarray(array[start : start + VECTORS_PER_BLOCK], np.float32)
        ids = pc.utf8_lpad(pc.cast(pa.array(np.arange(start, start + len(block))), pa.string()), digits, "0")
        _check_numbers(block, VectorRows(str(path), ids, start), dtype)
        yield ids, ids, block


@dataclass(frozen=True)
class VectorRows:
    """Consecutive rows of a file; names a row in errors.

    Attributes:
        url: URL of the file.
        ids: their text_ids.
        first: number of the first row, from 0.
    """

    url: str
    ids: pa.Array
    first: int

    def reject_if(self, wrong: Any, problem: str, remedy: str) -> None:
        """Raise an error for the first invalid row, if there is one.

        Args:
            wrong: mask of invalid rows, shape (n,).
            problem: what is wrong.
            remedy: what to do about it.

        Raises:
            InputError: a row is invalid.
        """
        if wrong.any():
            row, n_others = int(wrong.argmax()), int(wrong.sum()) - 1
            more = f" ({n_others} more of {len(wrong)} rows)" if n_others else ""
            name = f"row {self.first + row + 1}, text_id {self.ids[row].as_py()}"
            raise InputError(f"{self.url}, {name}: {problem}{more}; {remedy}")


def read_parquet(batches: Iterator[pa.RecordBatch], url: str, dtype: str) -> Iterator[Piece]:
    """Yield ids, document ids and vectors of each batch; all vectors must have the length of the first.

    Args:
        batches: batches of a Parquet file with text_id, vector and, optionally, doc_id.
        url: URL of the file.
        dtype: dtype of the embedding cache.

    Raises:
        InputError: an id or a vector is missing or invalid.
    """
    width, first = None, 0
    for batch in batches:
        ids, column = pc.cast(batch["text_id"], pa.string()), batch["vector"]
        if not _holds_numbers(column.type):
            raise InputError(f"{url}: the column vector must hold lists of numbers, but is of type {column.type}")
        rows = VectorRows(url, ids, first)
        rows.reject_if(_mask(pc.is_null(ids)), "text_id is null", "give each row an id")
        rows.reject_if(_mask(pc.is_null(column)), "vector is null", "remove the row")
        lengths = np.asarray(pc.list_value_length(column))
        if width is None and len(lengths):
            width = int(lengths[0])
            rows.reject_if(lengths == 0, "the vector has no numbers", "remove the row")
        rows.reject_if(lengths != width, *_odd_length(lengths, width))
        vectors = _numbers(column).reshape(-1, width or 1)
        _check_numbers(vectors, rows, dtype)
        documents = pc.cast(batch["doc_id"], pa.string()) if "doc_id" in batch.schema.names else ids
        yield ids, pc.coalesce(documents, ids), vectors
        first += len(batch)


def _holds_numbers(kind: pa.DataType) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)))


def _odd_length(lengths: NDArray[Any], width: int | None) -> tuple[str, str]:
    odd = lengths[lengths != width]
    length = int(odd[0]) if len(odd) else width
    return f"the vector has {length} numbers, the first row of the file {width}", "all must have the same length"


def _numbers(column: pa.Array) -> Floats:
    """All values in one flat array; nulls become NaN."""
    with np.errstate(over="ignore"):
        return np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float32)


def _mask(column: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(column.to_numpy(zero_copy_only=False), bool)


def _check_numbers(vectors: Floats, rows: VectorRows, dtype: str) -> None:
    """Reject vectors that are zero or not finite, in full precision and in the dtype of the embedding cache.

    Raises:
        InputError: a value is null, NaN or infinite, or all are 0.
    """
    remedy = "correct or remove the row"
    rows.reject_if(~np.isfinite(vectors).all(axis=1), "the vector has a null, NaN or infinite number", remedy)
    rows.reject_if(~vectors.any(axis=1), "the vector has only zeros", remedy)
    with np.errstate(over="ignore", under="ignore"):
        cached = vectors.astype(dtype)
    dtype_remedy = "set cache.vector_dtype: float32, or scale the vectors to length 1"
    rows.reject_if(
        ~np.isfinite(cached).all(axis=1), f"a number is too large for {dtype} (cache.vector_dtype)", dtype_remedy
    )
    rows.reject_if(~cached.any(axis=1), f"all numbers are 0 as {dtype} (cache.vector_dtype)", dtype_remedy)
