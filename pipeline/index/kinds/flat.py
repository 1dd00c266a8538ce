"""Brute-force index: exact, slowest."""

from __future__ import annotations

from typing import Any, Literal

from darklode.pipeline.base.types import Floats
from darklode.pipeline.index.faiss_io import faiss
from darklode.pipeline.index.kinds import IndexKind


class Flat(IndexKind):
    """Exact search over uncompressed vectors."""

    kind: Literal["flat"] = "flat"

    def train(self, sample: Floats, total: int) -> Any:  # noqa: ARG002 (there is nothing to fit)
        library = faiss()
        return library.IndexIDMap2(library.IndexFlatIP(sample.shape[1]))

    def search_parameters(self, index: Any, selector: Any) -> Any:  # noqa: ARG002 (it has no search effort)
        return faiss().SearchParameters(sel=selector)


KIND = Flat
