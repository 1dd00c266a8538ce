"""Indexes, a file each: a kind's settings, how it is fitted, how hard it can search and how vectors leave it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Bytes, Floats, Ints
from darklode.pipeline.index.faiss_io import POINTS, faiss
from darklode.schemas.serving import IndexSettings


class IndexKind(IndexSettings):
    """Settings of one kind of index, and what faiss makes of them. Vectors have length 1; scores are inner products.

    Attributes:
        FORGETS: whether vectors can be taken out; where they cannot, a search leaves them out.
        LOSSY: whether it has codes in the place of vectors.
        APART: whether codes can be made apart from the index that they are added to.
        LEAST: vectors that the kind is for; fewer are searched one by one, as `flat` does.
    """

    FORGETS: ClassVar[bool] = True
    LOSSY: ClassVar[bool] = False
    APART: ClassVar[bool] = False
    LEAST: ClassVar[int] = 0

    @abstractmethod
    def train(self, sample: Floats, total: int) -> Any:
        """An empty index that takes vectors under numbers of their own, its cells and codes fitted.

        Args:
            sample: shape (n, dimensions).
            total: how many vectors it will hold.

        Raises:
            SettingsError: the vectors' length does not go with the kind's settings.
        """

    def add_codes(self, _index: Any, _pieces: Iterable[tuple[Bytes, Ints]]) -> None:
        """Add codes that were made apart, which is to make of it what vectors in the same order make, to the byte.

        Args:
            _index: that `train` gave, empty.
            _pieces: codes by `index.sa_encode`, shape (n, bytes), and the vectors' numbers.
        """
        raise NotImplementedError

    def search_efforts(self, _index: Any) -> list[int]:
        """How hard it may search, the least first; 0 where there is no choice."""
        return [0]

    def try_hard(self, _index: Any, _effort: int) -> None:
        """Have it search as hard from now on."""

    def cost(self, _index: Any, effort: int) -> float:
        """How long a search takes, as so many candidates scored again do."""
        return float(effort)

    def search(self, index: Any, queries: Floats, depth: int, _gone: Ints) -> tuple[Floats, Ints]:
        """Scores and numbers of the best, shape (n_queries, depth) each; -1 for none.

        Args:
            index: that `train` gave, filled.
            queries: shape (n_queries, dimensions).
            depth: of the lists.
            _gone: numbers that are in an index that forgets none, and are not to be found.
        """
        scores, numbers = index.search(queries, depth)
        return np.asarray(scores, np.float32), np.asarray(numbers, np.int64)

    def code_bytes(self, index: Any) -> int:
        """What a vector takes besides its number and its links."""
        return int(index.d) * 4


class IvfKind(IndexKind):
    """Cells, and product codes of what a vector differs from its cell's centre in, fitted in fewer dimensions.

    Vectors are projected on the directions that hold most of their length and turned at random, so that all parts of a
    code have as much to tell. The directions are those of the second moment: centred ones (PCA) change the order of
    inner products. Scores are those of the projected vectors.

    Attributes:
        BITS: of a part of a code.
        QUICKER: codes that are looked at in the time that a candidate is scored again in (measured, one thread).
    """

    LOSSY: ClassVar[bool] = True
    APART: ClassVar[bool] = True
    LEAST: ClassVar[int] = POINTS * 16
    BITS: ClassVar[int]
    QUICKER: ClassVar[int]

    code_size: int = Field(16, gt=0, description="Bytes of a vector's product-quantiser code (faiss: code_size).")
    projection_dim: int = Field(128, gt=0, description="Dimensions that vectors are projected to before quantisation.")

    @abstractmethod
    def codes(self, sample: int) -> str:
        """The part of faiss' factory string that says what the codes are."""

    def train(self, sample: Floats, total: int) -> Any:
        library, width, parts = faiss(), sample.shape[1], self.code_size * 8 // self.BITS
        if width < parts:
            raise SettingsError(
                f"index.code_size {self.code_size}: vectors of {width} numbers cannot have codes of {parts} parts"
            )
        output_dim = min(width, self.projection_dim) // parts * parts or parts
        turn = library.LinearTransform(width, output_dim, False)
        library.copy_array_to_vector(_directions(sample, output_dim).ravel(), turn.A)
        turn.is_trained = True
        inner = library.index_factory(
            output_dim, f"IVF{cells_for(total, len(sample))},{self.codes(len(sample))}", library.METRIC_INNER_PRODUCT
        )
        inner.cp.niter = 10
        inner.train(turn.apply(sample))
        return library.IndexPreTransform(turn, inner)

    def search_efforts(self, index: Any) -> list[int]:
        """See `IndexKind`: cells looked into."""
        max_nprobe = min(256, faiss().extract_index_ivf(index).nlist)
        return sorted({*(2**power for power in range(max_nprobe.bit_length()) if 2**power <= max_nprobe), max_nprobe})

    def try_hard(self, index: Any, effort: int) -> None:
        faiss().extract_index_ivf(index).nprobe = effort

    def cost(self, index: Any, effort: int) -> float:
        return float(effort * index.ntotal / faiss().extract_index_ivf(index).nlist / self.QUICKER)

    def code_bytes(self, index: Any) -> int:
        return int(faiss().extract_index_ivf(index).code_size)


def _directions(sample: Floats, n_directions: int) -> Floats:
    """Orthonormal rows, shape (kept, dimensions)."""
    _, vectors = np.linalg.eigh(sample.T.astype(np.float64) @ sample)
    turned = np.linalg.qr(np.random.default_rng(_TURN).standard_normal((n_directions, n_directions)))[0]
    return np.ascontiguousarray(turned @ vectors[:, ::-1][:, :n_directions].T, np.float32)


_TURN = 20190601


def cells_for(total: int, sample: int) -> int:
    """Cells of an inverted index: four times the root of the vectors, and not fewer than 39 of the sample in each."""
    return max(1, min(round(4 * sqrt(total)), sample // POINTS))
