"""Vectors of a byte a number, by which candidates are scored again: files that are mapped, not read."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.serve.vectors.library import Floats, Ints

MOST = 127
AT_ONCE = 16
"""Queries whose candidates are gathered together."""


def encoded(vectors: Floats) -> bytes:
    """A NumPy file of vectors: each one's numbers as bytes from -127 to 127, and what to multiply them by."""
    longest = np.maximum(np.abs(vectors).max(axis=1), np.finfo(np.float32).tiny)
    rows = np.empty(len(vectors), _form(vectors.shape[1]))
    rows["numbers"] = np.rint(vectors * (MOST / longest)[:, None]).astype(np.int8)
    rows["unit"] = longest / MOST
    file = BytesIO()
    np.save(file, rows)
    return file.getvalue()


def _form(dimensions: int) -> Any:
    return np.dtype([("unit", "<f4"), ("numbers", "i1", (dimensions,))])


class Stored:
    """The files of an index, by the numbers of their first vectors.

    Args:
        files: number of the first vector, and where the file lies.

    Raises:
        ArtifactError: one is damaged.
    """

    def __init__(self, files: Iterable[tuple[int, Path]]) -> None:
        ordered = sorted(files)
        self._firsts = np.array([first for first, _ in ordered], np.int64)
        self._files = [_mapped(path) for _, path in ordered]

    def scores(self, queries: Floats, numbers: Ints) -> Floats:
        """Inner products with candidates, shape of `numbers`; of none (-1) minus infinity.

        Args:
            queries: shape (n_queries, dimensions).
            numbers: shape (n_queries, candidates).
        """
        found = np.full(numbers.shape, -np.inf, np.float32)
        for start in range(0, len(queries), AT_ONCE):
            mine = numbers[start : start + AT_ONCE]
            rows = self._take(mine.ravel())
            block = rows["numbers"].astype(np.float32).reshape(*mine.shape, -1)
            products = np.matmul(block, queries[start : start + AT_ONCE, :, None])[:, :, 0]
            scored = products * rows["unit"].reshape(mine.shape)
            found[start : start + AT_ONCE] = np.where(mine >= 0, scored, -np.inf)
        return found

    def _take(self, numbers: Ints) -> NDArray[Any]:
        numbers = np.maximum(numbers, self._firsts[0])
        if len(self._files) == 1:
            return np.asarray(self._files[0][numbers - self._firsts[0]])
        of_file = np.searchsorted(self._firsts, numbers, side="right") - 1
        out = np.empty(len(numbers), self._files[0].dtype)
        for file in np.unique(of_file):
            mine = of_file == file
            out[mine] = self._files[file][numbers[mine] - self._firsts[file]]
        return out


def _mapped(path: Path) -> NDArray[Any]:
    try:
        found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise ArtifactError(f"{path} is damaged ({error}); make the index again with `darklode index`") from error
    return found
