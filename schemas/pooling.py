"""The settings of pooling: what turns texts into vectors, who searches, and which candidates are judged."""

from typing import Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.kinds import KindGroup, KindSection
from darklode.schemas.paths import FolderOrName
from darklode.schemas.section import NoRow, Section

ENCODERS = KindGroup("encoders", "darklode.pipeline.retrieve.encoders.kinds")
RETRIEVERS = KindGroup("retrievers", "darklode.pipeline.retrieve.retrievers.kinds")


class EncoderSettings(KindSection):
    """What turns texts into vectors; each kind has keys of its own."""

    kind: str = Field(description="how it is run; each kind has keys of its own")
    model: str = Field(min_length=1, description="the model's name")

    def price(self) -> float:
        """What a million tokens cost; 0 for a model of one's own."""
        return 0.0


class RetrieverSettings(KindSection):
    """Who finds chunks; each kind has keys of its own."""

    kind: str = Field(description="how it searches; each kind has keys of its own")


class LocalModel(Section):
    """A sentence-transformers model that runs on this machine."""

    model: FolderOrName[str] = Field(min_length=1, description="on the hub, a local folder, or package:NAME here")
    revision: str | None = Field(None, description="commit or tag on the hub; null: what is in the local cache")
    max_tokens: int | None = Field(None, gt=0, description="longer texts are cut; null: the model's own limit")
    dtype: Literal["float32", "float16", "bfloat16"] = Field("float32", description="precision of the model")
    device: NoRow[str] = Field("auto", description="auto (every GPU, else the CPU), cpu, cuda or cuda:N")
    batch_size: NoRow[int] = Field(32, gt=0, description="texts per forward pass")


class Bm25Settings(Section):
    """How BM25 reads and weighs words."""

    engine: Literal["bm25s", "rank_bm25"] = Field("bm25s", description="bm25s, or the much slower rank-bm25")
    method: Literal["lucene", "robertson", "atire", "bm25l", "bm25+"] = Field("lucene", description="variant of BM25")
    k1: float = Field(1.5, ge=0, description="how soon repeated terms stop counting")
    b: float = Field(0.75, ge=0, le=1, description="how much long chunks are discounted")
    stemmer: str | None = Field("english", description="Snowball stemmer, such as german; null: none")
    stop_words: bool = Field(True, description="leave English stop words out")


class VectorSettings(Section):
    """Exact search over cached vectors."""

    device: NoRow[Literal["auto", "cpu", "cuda"]] = Field("auto", description="auto: the GPU where there is one")
    memory_mb: NoRow[int] = Field(1024, gt=0, description="most host memory for vectors and scores")
    gpu_memory_mb: NoRow[int] = Field(8192, gt=0, description="most GPU memory for vectors and scores")
    index: Literal["exact", "hnsw", "ivf"] = Field("exact", description="hnsw and ivf are approximate (faiss)")


class PoolSettings(Section):
    """Who searches, and which candidates are judged."""

    retrievers: tuple[str, ...] = Field((), description="their names, in order; empty: the preset's")
    depth: int = Field(60, gt=0, description="candidates from each retriever (DevRev-Search, 3.3)")
    search_depth: int = Field(420, gt=0, description="length of the lists kept for the audit (DevRev-Search, A.2)")
    rule: Literal["union", "fused"] = Field(
        "union", description="union of the top `depth`, or the best `budget` by reciprocal-rank fusion"
    )
    budget: int = Field(150, gt=0, description="candidates per query under the rule `fused`")

    @model_validator(mode="after")
    def _lists_reach_the_pool(self) -> Self:
        if self.depth > self.search_depth:
            raise ValueError(f"depth {self.depth} must not exceed search_depth {self.search_depth}")
        return self
