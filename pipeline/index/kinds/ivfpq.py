"""IVF with product quantization (Jégou, Douze and Schmid 2011)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from darklode.pipeline.base.types import Bytes, Ints
from darklode.pipeline.index.faiss_io import MIN_POINTS_PER_CENTROID, faiss
from darklode.pipeline.index.kinds import IvfKind


class Ivfpq(IvfKind):
    """Inverted file with product-quantised residuals, 8 bits per sub-quantiser."""

    BITS: ClassVar[int] = 8
    BYTES_PER_RESCORE: ClassVar[int] = 480

    kind: Literal["ivfpq"] = "ivfpq"

    def codes(self, parts: int, sample: int) -> str:
        """8 bits if the sample has 39 vectors for each of 256 centroids, else fewer.

        `np` disables polysemous training, which takes minutes and is not used by this search.
        """
        return f"PQ{parts}x{min(self.BITS, (sample // MIN_POINTS_PER_CENTROID).bit_length() - 1)}np"

    def add_codes(self, index: Any, pieces: Iterable[tuple[Bytes, Ints]]) -> None:
        ivf = faiss().extract_index_ivf(index)
        for codes, numbers in pieces:
            ivf.add_sa_codes(codes, numbers)
        index.ntotal = ivf.ntotal


KIND = Ivfpq
