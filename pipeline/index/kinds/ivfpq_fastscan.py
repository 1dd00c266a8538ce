"""IVFPQ with 4-bit codes, scanned 32 at a time by SIMD (André, Kermarrec and Le Scouarnec 2015)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from darklode.pipeline.base.types import Bytes, Ints
from darklode.pipeline.index.faiss_io import faiss
from darklode.pipeline.index.kinds import IvfKind


class IvfpqFastscan(IvfKind):
    """Inverted file with product-quantised residuals, 4 bits per sub-quantiser, scanned with SIMD: the fastest kind.

    Deleted vectors are filtered from results, because faiss 1.15 corrupts the codes of vectors added after a removal.
    """

    SUPPORTS_REMOVAL: ClassVar[bool] = False
    BITS: ClassVar[int] = 4
    BYTES_PER_RESCORE: ClassVar[int] = 4000

    kind: Literal["ivfpq_fastscan"] = "ivfpq_fastscan"

    def codes(self, parts: int, sample: int) -> str:  # noqa: ARG002 (16 centroids always have enough vectors)
        """`r` encodes residuals; without it recall is lower."""
        return f"PQ{parts}x4fsr"

    def add_codes(self, index: Any, pieces: Iterable[tuple[Bytes, Ints]]) -> None:
        # Plain IVFPQ lists are filled first, then repacked into fast-scan blocks of 32.
        library = faiss()
        ivf = library.downcast_index(library.extract_index_ivf(index))
        plain = library.IndexIVFPQ(ivf.quantizer, ivf.d, ivf.nlist, ivf.M, self.BITS, ivf.metric_type)
        plain.pq, plain.by_residual, plain.is_trained = ivf.pq, ivf.by_residual, True
        for codes, numbers in pieces:
            plain.add_sa_codes(codes, numbers)
        packed = library.IndexIVFPQFastScan(plain, ivf.bbs)
        packed.own_invlists = False
        ivf.replace_invlists(packed.invlists, True)
        ivf.ntotal = index.ntotal = plain.ntotal


KIND = IvfpqFastscan
