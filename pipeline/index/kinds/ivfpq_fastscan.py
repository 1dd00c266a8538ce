"""Cells and product codes of 4 bits, looked up 32 at a time (André, Kermarrec and Le Scouarnec 2015)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np

from darklode.pipeline.base.types import Bytes, Floats, Ints
from darklode.pipeline.index.faiss_io import faiss
from darklode.pipeline.index.kinds import IvfKind


class IvfpqFastscan(IvfKind):
    """Inverted file with product-quantised residuals, 4 bits per sub-quantiser, scanned with SIMD: the fastest kind.

    Deleted vectors are filtered from results, because faiss 1.15 corrupts the codes of vectors added after a removal.
    """

    FORGETS: ClassVar[bool] = False
    BITS: ClassVar[int] = 4
    QUICKER: ClassVar[int] = 300

    kind: Literal["ivfpq_fastscan"] = "ivfpq_fastscan"

    def codes(self, sample: int) -> str:  # noqa: ARG002 (16 centres never lack vectors here)
        """See `CelledKind`. Without `r` faiss would code whole vectors, and find less."""
        return f"PQ{2 * self.code_size}x4fsr"

    def add_codes(self, index: Any, pieces: Iterable[tuple[Bytes, Ints]]) -> None:
        """See `IndexKind`: lists of plain codes are laid out in blocks of 32 when all are there."""
        library = faiss()
        cells = library.downcast_index(library.extract_index_ivf(index))
        plain = library.IndexIVFPQ(cells.quantizer, cells.d, cells.nlist, cells.M, self.BITS, cells.metric_type)
        plain.pq, plain.by_residual, plain.is_trained = cells.pq, cells.by_residual, True
        for codes, numbers in pieces:
            plain.add_sa_codes(codes, numbers)
        laid = library.IndexIVFPQFastScan(plain, cells.bbs)
        laid.own_invlists = False
        cells.replace_invlists(laid.invlists, True)
        cells.ntotal = index.ntotal = plain.ntotal

    def search(self, index: Any, queries: Floats, depth: int, gone: Ints) -> tuple[Floats, Ints]:
        if not len(gone):
            return super().search(index, queries, depth, gone)
        library = faiss()
        removed_selector = library.IDSelectorBatch(gone)
        inner = library.SearchParametersIVF(
            sel=library.IDSelectorNot(removed_selector), nprobe=library.extract_index_ivf(index).nprobe
        )
        search_parameters = library.SearchParametersPreTransform(index_params=inner)
        scores, numbers = index.search(queries, depth, params=search_parameters)
        return np.asarray(scores, np.float32), np.asarray(numbers, np.int64)


KIND = IvfpqFastscan
