"""HNSW graph (Malkov and Yashunin 2016): fastest at high recall, with full vectors in memory."""

from __future__ import annotations

from math import ceil
from typing import Any, ClassVar, Literal

from pydantic import Field

from darklode.pipeline.base.types import Floats
from darklode.pipeline.index.faiss_io import faiss
from darklode.pipeline.index.kinds import IndexKind


class Hnsw(IndexKind):
    """An HNSW graph. Deleted vectors stay in the graph and are filtered from results."""

    SUPPORTS_REMOVAL: ClassVar[bool] = False

    kind: Literal["hnsw"] = "hnsw"
    hnsw_m: int = Field(32, ge=2, le=128, description="M, links per vector (Malkov and Yashunin: 5 to 48).")
    ef_construction: int = Field(200, gt=0, description="efConstruction, candidates per insertion.")

    def train(self, sample: Floats, total: int) -> Any:  # noqa: ARG002 (a graph is not fitted)
        library = faiss()
        graph = library.IndexHNSWFlat(sample.shape[1], self.hnsw_m, library.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = self.ef_construction
        return library.IndexIDMap2(graph)

    def search_efforts(self, _index: Any) -> list[int]:
        return [128, 256, 512, 1024, 2048]

    def set_effort(self, index: Any, effort: int) -> None:
        _graph(index).efSearch = effort

    def search_parameters(self, index: Any, selector: Any) -> Any:
        # Explicit search parameters replace the index's efSearch by their own default of 16: pass it again.
        return faiss().SearchParametersHNSW(sel=selector, efSearch=_graph(index).efSearch)

    def effort_for_share(self, index: Any, effort: int, share: float) -> int:
        return min(int(index.ntotal), ceil(effort / share))


def _graph(index: Any) -> Any:
    library = faiss()
    return library.downcast_index(library.downcast_index(index).index).hnsw


KIND = Hnsw
