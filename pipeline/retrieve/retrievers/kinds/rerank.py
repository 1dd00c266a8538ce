"""The best hits of another retriever, ordered by a cross-encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from darklode.pipeline.retrieve.retrievers.kinds import Assembly, ModelKind

if TYPE_CHECKING:
    from darklode.pipeline.base.models.local import ModelClass
    from darklode.pipeline.retrieve.retrievers.port import Retriever


class RerankKind(ModelKind):
    """The best hits of another retriever, ordered by a cross-encoder of sentence-transformers."""

    MODEL_CLASS: ClassVar[ModelClass] = "CrossEncoder"

    kind: Literal["rerank"] = "rerank"
    of: str = Field(min_length=1, description="Name of the retriever whose hits are reranked.")
    depth: int = Field(100, gt=0, description="Hits to rerank per query, and length of the list.")
    weight: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Weight of the model's scores; the retriever's have the rest, both scaled to 0 … 1 per query. "
        "null: the weight that `train-reranker` selected for the model, else 1.",
    )

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.of,)

    @property
    def member_depth(self) -> int:
        return self.depth

    def assemble(self, parts: Assembly) -> Retriever:
        from darklode.pipeline.base.memory.store import KeyedStore
        from darklode.pipeline.base.models.cross_encoder import CrossEncoderModel
        from darklode.pipeline.base.models.local import require_tenant, reranker_record
        from darklode.pipeline.retrieve.retrievers.rerank import SCORE_ROWS, CrossEncoderScorer, Reranked

        require_tenant(self, parts.corpus.tenant_chunks.tenant)
        weight = self.weight or reranker_record(self).get("weight", 1.0)
        store = KeyedStore(parts.cache.root, SCORE_ROWS)
        scorer = CrossEncoderScorer(CrossEncoderModel(self), parts.corpus, store, self.model_id())
        return Reranked(parts.name, parts.members[0], self.depth, scorer, parts.corpus.n_chunks, weight)


KIND = RerankKind
