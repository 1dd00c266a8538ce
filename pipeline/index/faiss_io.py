"""faiss on one thread, so that equal vectors give equal bytes; indexes are read and written as bytes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.errors import ArtifactError, MissingPart
from darklode.pipeline.base.types import Ints

MIN_POINTS_PER_CENTROID = 39
"""Minimum training vectors per centroid; faiss warns below this number."""


def faiss() -> Any:
    """Import faiss.

    Raises:
        MissingPart: it is not installed.
    """
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise MissingPart('an index needs faiss: pip install "darklode[neural]"') from error


@contextmanager
def one_thread() -> Iterator[None]:
    """Run faiss and BLAS on one thread: the number of threads changes rounding, and with it centroids."""
    library = faiss()
    before = library.omp_get_max_threads()
    library.omp_set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        library.omp_set_num_threads(before)


def to_bytes(index: Any) -> memoryview:
    """Serialize an index in faiss's file format."""
    return memoryview(faiss().serialize_index(index))


def from_bytes(data: bytes, where: str) -> Any:
    """Deserialize an index.

    Raises:
        ArtifactError: the data is not a faiss index.
    """
    try:
        return faiss().deserialize_index(np.frombuffer(data, np.uint8))
    except RuntimeError as error:
        raise ArtifactError(f"{where} is damaged; build the index again with `darklode index`") from error


def codebook_of(index: Any) -> str:
    """Hash of what was trained (projection, coarse centroids, codes), but not of vectors or search parameters.

    16 hex digits. For an index without training, it depends on index type and dimensions only.
    """
    library = faiss()
    inner_index = library.downcast_index(index)
    digest = sha256(f"{type(inner_index).__name__} {inner_index.d}".encode())
    if hasattr(inner_index, "id_map"):
        digest.update(type(library.downcast_index(inner_index.index)).__name__.encode())
        return digest.hexdigest()[:16]
    cells = library.downcast_index(library.extract_index_ivf(inner_index))
    for step in range(inner_index.chain.size()):
        digest.update(library.vector_to_array(library.downcast_VectorTransform(inner_index.chain.at(step)).A).tobytes())
    codes = cells.pq
    digest.update(f"{type(cells).__name__} {cells.nlist} {codes.M} {codes.nbits} {cells.by_residual}".encode())
    digest.update(to_bytes(cells.quantizer))
    digest.update(library.vector_to_array(codes.centroids).tobytes())
    return digest.hexdigest()[:16]


def is_member(numbers: Ints, other_numbers: Ints) -> NDArray[np.bool_]:
    """Mask of `numbers`, all ≥ 0, that occur in `other_numbers`. Uses a table, because text numbers are dense."""
    marks = np.zeros(1 + max(int(numbers.max(initial=0)), int(other_numbers.max(initial=0))), np.bool_)
    marks[other_numbers] = True
    return np.asarray(marks[numbers])


def positions_of(numbers: Ints, other_numbers: Ints) -> Ints:
    """Position in `other_numbers`, which are ≥ 0 and unique, of each number ≥ 0; -1 if it does not occur."""
    positions = np.full(1 + max(int(numbers.max(initial=0)), int(other_numbers.max(initial=0))), -1, np.int64)
    positions[other_numbers] = np.arange(len(other_numbers))
    return np.asarray(positions[numbers])


def selector_of(numbers: Ints) -> Any:
    """A faiss selector of some vectors by number; it is a bitmap, so that a look-up is one bit."""
    library = faiss()
    mask = np.zeros(1 + int(numbers.max(initial=0)), np.bool_)
    mask[numbers] = True
    return library.IDSelectorBitmap(np.packbits(mask, bitorder="little"))


def numbers_in(index: Any) -> Ints:
    """Numbers of the vectors in an index, ascending."""
    library = faiss()
    inner_index = library.downcast_index(index)
    if hasattr(inner_index, "id_map"):
        return np.sort(library.vector_to_array(inner_index.id_map).astype(np.int64))
    lists = library.extract_index_ivf(inner_index).invlists
    parts = [_numbers_in_list(library, lists, cell) for cell in range(lists.nlist)]
    return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))


def _numbers_in_list(library: Any, lists: Any, cell: int) -> Ints:
    size = lists.list_size(cell)
    if not size:
        return np.empty(0, np.int64)
    ids = lists.get_ids(cell)
    try:
        return np.array(library.rev_swig_ptr(ids, size), np.int64)
    finally:
        lists.release_ids(cell, ids)
