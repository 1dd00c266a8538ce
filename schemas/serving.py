"""Settings of `index`: semantic ids, and the vector index."""

from pydantic import Field

from darklode.schemas.kinds import KindGroup, KindName, KindSection
from darklode.schemas.section import Section
from darklode.schemas.shared import TruncateDim

INDEXES = KindGroup("indexes", "darklode.pipeline.index.kinds")


class SemanticIdSettings(Section):
    """Semantic ids by residual k-means: one code per level, each level quantises the residual of the levels before."""

    levels: int = Field(6, gt=0, le=16, description="Number of codes of an id (ScalingNote, 3.5: 6).")
    codebook_size: int = Field(
        256,
        gt=1,
        le=65536,
        description="Centroids per level; fewer if there are less than 39 texts per centroid, faiss's minimum.",
    )


class IndexSettings(KindSection):
    """Vector index."""

    kind: KindName = "ivfpq_fastscan"
    truncate_dim: TruncateDim = None
    train_size: int = Field(65536, gt=0, description="Maximum number of vectors to train cells and codes on.")
    refine_factor: int = Field(
        24,
        ge=1,
        description="Maximum k-factor of the refinement: up to this many times k candidates are scored again with "
        "8-bit vectors, as many as target_recall needs. 1: no refinement.",
    )
    target_recall: float = Field(
        0.9,
        gt=0,
        le=1,
        description="Recall@100 against exact search to exceed by two standard errors; the cheapest search parameters "
        "that do so are chosen.",
    )
    tuning_queries: int = Field(
        400,
        ge=4,
        description="Maximum number of queries to measure recall on; half of them choose the search parameters.",
    )
