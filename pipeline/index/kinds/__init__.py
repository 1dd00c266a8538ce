"""Index kinds, one file each: settings, training, search effort, and removal of vectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from math import ceil, sqrt
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from darklode.pipeline.base.types import Bytes, Floats, Ints
from darklode.pipeline.index.faiss_io import MIN_POINTS_PER_CENTROID, faiss
from darklode.schemas.serving import IndexSettings


class IndexKind(IndexSettings):
    """Settings of an index kind and its faiss implementation. Vectors have length 1; scores are inner products.

    Attributes:
        SUPPORTS_REMOVAL: whether vectors can be removed; if not, searches skip removed ones.
        LOSSY: whether it stores codes instead of vectors.
        ENCODES_STANDALONE: whether codes can be computed outside the index and added later.
        MIN_VECTORS: minimum number of vectors; with fewer, `flat` is built instead.
    """

    SUPPORTS_REMOVAL: ClassVar[bool] = True
    LOSSY: ClassVar[bool] = False
    ENCODES_STANDALONE: ClassVar[bool] = False
    MIN_VECTORS: ClassVar[int] = 0

    @abstractmethod
    def train(self, sample: Floats, total: int) -> Any:
        """An empty, trained index that accepts vectors with ids.

        Args:
            sample: shape (n, dimensions).
            total: number of vectors to be added.
        """

    def add_codes(self, _index: Any, _pieces: Iterable[tuple[Bytes, Ints]]) -> None:
        """Add codes computed elsewhere; the index must be byte-identical to one filled with the vectors.

        Args:
            _index: empty index from `train`.
            _pieces: codes by `index.sa_encode`, shape (n, bytes), and ids of the vectors.
        """
        raise NotImplementedError

    def search_efforts(self, _index: Any) -> list[int]:
        """Values of the search parameter (nprobe, efSearch), ascending; 0 if the kind has none."""
        return [0]

    def set_effort(self, _index: Any, _effort: int) -> None:
        """Set the search parameter."""

    def cost(self, _index: Any, effort: int) -> float:
        """Cost of a search, in candidates that could be rescored in the same time."""
        return float(effort)

    def search(self, index: Any, queries: Floats, depth: int, selector: Any = None) -> tuple[Floats, Ints]:
        """Scores and ids of the best vectors, shape (n_queries, depth) each; id -1: none.

        Args:
            index: from `train`, with vectors.
            queries: shape (n_queries, dimensions).
            depth: length of the lists.
            selector: faiss selector of the ids that may be returned; None: all.
        """
        parameters = None if selector is None else self.search_parameters(index, selector)
        scores, numbers = index.search(queries, depth, params=parameters)
        return np.asarray(scores, np.float32), np.asarray(numbers, np.int64)

    @abstractmethod
    def search_parameters(self, index: Any, selector: Any) -> Any:
        """faiss search parameters with the index's search effort and a selector of ids."""

    def effort_for_share(self, index: Any, effort: int, share: float) -> int:
        """The search effort for a share of the vectors that visits as many of them as `effort` does of all vectors."""
        del index, share
        return effort

    def vectors(self, index: Any, numbers: Ints) -> Floats:
        """Some of the indexed vectors, of a kind that is not `LOSSY`."""
        return np.asarray(index.reconstruct_batch(numbers), np.float32)

    def code_bytes(self, index: Any) -> int:
        """Bytes per vector, without its id and graph links."""
        return int(index.d) * 4


class IvfKind(IndexKind):
    """Inverted file (IVF) with product quantization of residuals, in a space of reduced dimensions.

    Vectors are projected on their principal directions and rotated at random, which spreads the variance evenly over
    the subquantizers. Directions are eigenvectors of the uncentered second moment: centering (PCA) would change the
    order of inner products. Scores are those of the projected vectors.

    Attributes:
        BITS: bits of a subquantizer.
        BYTES_PER_RESCORE: bytes of codes scanned in the time of re-ranking one candidate (measured on one thread).
    """

    LOSSY: ClassVar[bool] = True
    ENCODES_STANDALONE: ClassVar[bool] = True
    MIN_VECTORS: ClassVar[int] = MIN_POINTS_PER_CENTROID * 16
    BITS: ClassVar[int]
    BYTES_PER_RESCORE: ClassVar[int]

    code_size: int = Field(
        32,
        gt=0,
        description="Maximum bytes of a vector's product-quantiser code (faiss: code_size); fewer if that exceeds one "
        "sub-quantiser per dimension.",
    )
    projection_dim: int = Field(192, gt=0, description="Dimensions that vectors are projected to before quantisation.")

    @abstractmethod
    def codes(self, parts: int, sample: int) -> str:
        """The part of faiss's factory string that describes the codes.

        Args:
            parts: number of sub-quantizers.
            sample: number of training vectors.
        """

    def train(self, sample: Floats, total: int) -> Any:
        library, width = faiss(), sample.shape[1]
        parts = min(self.code_size * 8 // self.BITS, width)
        output_dim = min(width, self.projection_dim) // parts * parts or parts
        projection = library.LinearTransform(width, output_dim, False)
        library.copy_array_to_vector(_directions(sample, output_dim).ravel(), projection.A)
        projection.is_trained = True
        inner = library.index_factory(
            output_dim,
            f"IVF{cells_for(total, len(sample))},{self.codes(parts, len(sample))}",
            library.METRIC_INNER_PRODUCT,
        )
        inner.cp.niter = 10
        inner.train(projection.apply(sample))
        return library.IndexPreTransform(projection, inner)

    def search_efforts(self, index: Any) -> list[int]:
        """Values of nprobe up to 256 or the number of cells: powers of two and, between them, 1.5 times the lower."""
        max_nprobe = min(256, faiss().extract_index_ivf(index).nlist)
        powers = [2**power for power in range(max_nprobe.bit_length())]
        values = {*powers, *(3 * power // 2 for power in powers), max_nprobe}
        return sorted(value for value in values if value <= max_nprobe)

    def set_effort(self, index: Any, effort: int) -> None:
        faiss().extract_index_ivf(index).nprobe = effort

    def cost(self, index: Any, effort: int) -> float:
        cells = faiss().extract_index_ivf(index)
        return float(effort * index.ntotal / cells.nlist * cells.code_size / self.BYTES_PER_RESCORE)

    def search_parameters(self, index: Any, selector: Any) -> Any:
        library = faiss()
        inner = library.SearchParametersIVF(sel=selector, nprobe=library.extract_index_ivf(index).nprobe)
        return library.SearchParametersPreTransform(index_params=inner)

    def effort_for_share(self, index: Any, effort: int, share: float) -> int:
        return min(int(faiss().extract_index_ivf(index).nlist), ceil(effort / share))

    def code_bytes(self, index: Any) -> int:
        return int(faiss().extract_index_ivf(index).code_size)


def _directions(sample: Floats, n_directions: int) -> Floats:
    """Orthonormal rows, shape (n_directions, dimensions)."""
    _, vectors = np.linalg.eigh(sample.T.astype(np.float64) @ sample)
    rotation = np.linalg.qr(np.random.default_rng(_ROTATION_SEED).standard_normal((n_directions, n_directions)))[0]
    return np.ascontiguousarray(rotation @ vectors[:, ::-1][:, :n_directions].T, np.float32)


_ROTATION_SEED = 20190601  # fixed, so that the same sample gives the same index; any number would do


def cells_for(total: int, sample: int) -> int:
    """Number of IVF cells: 4 · sqrt(total), but at least 39 sample vectors per cell."""
    return max(1, min(round(4 * sqrt(total)), sample // MIN_POINTS_PER_CENTROID))
