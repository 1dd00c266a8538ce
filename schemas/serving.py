"""The settings of `index`: how texts get semantic ids, and how their vectors are compressed and searched."""

from pydantic import Field

from darklode.schemas.kinds import KindGroup, KindSection
from darklode.schemas.section import Section

INDEXES = KindGroup("indexes", "darklode.pipeline.index.kinds")


class SemanticIdSettings(Section):
    """Residual k-means: level by level, each text's nearest centre of what the levels before left over."""

    levels: int = Field(6, gt=0, le=16, description="numbers of an id (ScalingNote, 3.5: 6)")
    codes: int = Field(
        256, gt=1, le=65536, description="centres of a level; fewer where there are not 39 texts for each"
    )
    sample: int = Field(25600, gt=0, description="texts that the centres are fitted on, at most")
    iterations: int = Field(20, gt=0, description="of k-means")


class IndexSettings(KindSection):
    """How vectors are searched; each kind has keys of its own."""

    kind: str = Field("ivfpq_fastscan", description="flat, hnsw, ivfpq, ivfpq_fastscan; each kind has keys of its own")
    dimensions: int | None = Field(
        None, gt=0, description="first numbers of each vector that are kept, for encoders with nested ones; null: all"
    )
    sample: int = Field(65536, gt=0, description="vectors that cells and codes are fitted on, at most")
    rerank: int = Field(
        24,
        ge=1,
        description="times as many candidates, at most, are scored again by vectors of a byte a number, as many as "
        "recall asks for; 1: by codes alone",
    )
    recall: float = Field(
        0.9,
        gt=0,
        le=1,
        description="recall@100 against exact search that is reached, by two standard errors, with the least effort",
    )
    queries: int = Field(400, ge=4, description="most queries that recall is measured on, a half to choose the effort")
