"""Settings of retrieval: encoders, retrievers, vector search, and the pool of candidates to judge."""

from typing import Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.kinds import KindGroup, KindName, KindSection
from darklode.schemas.paths import FolderOrName
from darklode.schemas.section import NoRow, Section
from darklode.schemas.shared import Device, LocalModelSection, ModelName, ModelPath, OnnxModelSection

ENCODERS = KindGroup("encoders", "darklode.pipeline.retrieve.encoders.kinds")
RETRIEVERS = KindGroup("retrievers", "darklode.pipeline.retrieve.retrievers.kinds")


class EncoderSettings(KindSection):
    """Encoder of texts into vectors."""

    kind: KindName
    model: str = Field(min_length=1, description=ModelName)

    def price(self) -> float:
        """Price of a million tokens; 0 for local models."""
        return 0.0


class RetrieverSettings(KindSection):
    """Retriever of chunks."""

    kind: KindName


class LocalModel(LocalModelSection):
    """A model of the Hugging Face hub, or of a folder, that runs on this machine."""

    model: FolderOrName[str] = Field(min_length=1, description=ModelPath)
    dtype: Literal["float32", "float16", "bfloat16"] = Field("float32", description="Precision of the weights.")


class OnnxModel(OnnxModelSection):
    """An ONNX model that fastembed runs on this machine."""

    model: FolderOrName[str] = Field(min_length=1, description=ModelPath)


class Bm25Settings(Section):
    """BM25."""

    engine: Literal["bm25s", "rank_bm25"] = Field(
        "bm25s", description="Library: bm25s, or rank_bm25 (the package rank-bm25), which is much slower."
    )
    method: Literal["lucene", "robertson", "atire", "bm25l", "bm25+"] = Field("lucene", description="BM25 variant.")
    k1: float = Field(1.5, ge=0, description="Term frequency saturation: higher values count repeated terms more.")
    b: float = Field(0.75, ge=0, le=1, description="Length normalisation: 0 none, 1 full.")
    stemmer: str | None = Field("english", description="Snowball stemmer, such as german. null: no stemming.")
    stop_words: bool = Field(True, description="Remove English stop words.")


class VectorSearchSettings(Section):
    """Search over cached vectors."""

    device: NoRow[Literal["auto", "cpu", "cuda"]] = Field("auto", description=Device)
    max_memory_mb: NoRow[int] = Field(1024, gt=0, description="Maximum host memory for vectors and scores.")
    max_gpu_memory_mb: NoRow[int] = Field(8192, gt=0, description="Maximum GPU memory for vectors and scores.")
    index: Literal["exact", "hnsw", "ivf"] = Field(
        "exact", description="exact, or an approximate faiss index: hnsw, ivf."
    )


class PoolSettings(Section):
    """Retrievers of the pool, and the candidates to judge."""

    retrievers: tuple[str, ...] = Field(
        (), description="Retrievers, encoders, or entries of `retrievers`, by name. Empty: the preset's."
    )
    depth: int = Field(60, gt=0, description="Candidates from each retriever (DevRev-Search, 3.3: 60).")
    search_depth: int = Field(
        420, gt=0, description="Length of the ranked lists that are kept for the audit (DevRev-Search, A.2: 420)."
    )
    method: Literal["union", "rrf"] = Field(
        "union",
        description="union: all candidates down to `depth` (DevRev-Search). rrf: the best `budget` candidates by "
        "reciprocal rank fusion.",
    )
    budget: int = Field(150, gt=0, description="Candidates per query for method rrf.")

    @model_validator(mode="after")
    def _lists_reach_the_depth(self) -> Self:
        if self.depth > self.search_depth:
            raise ValueError(f"depth {self.depth} must not exceed search_depth {self.search_depth}")
        return self
