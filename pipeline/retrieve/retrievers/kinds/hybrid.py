"""Fused rankings of several retrievers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from darklode.pipeline.retrieve.retrievers.kinds import Assembly, CompositeKind

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.retrievers.port import Retriever


class HybridKind(CompositeKind):
    """Fused rankings of several retrievers, by reciprocal rank or by normalized score."""

    kind: Literal["hybrid"] = "hybrid"
    of: tuple[str, ...] = Field(min_length=2, description="Names of the retrievers to fuse.")
    method: Literal["rrf", "weighted"] = Field(
        "rrf", description="rrf: reciprocal rank fusion. weighted: sum of scores after min-max normalization per query."
    )
    weights: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (), description="Weight of each retriever in `of`. Empty: equal weights."
    )
    depth: int = Field(420, gt=0, description="Hits of each retriever that are fused.")

    @model_validator(mode="after")
    def _has_a_weight_for_each(self) -> Self:
        if len(set(self.of)) < len(self.of):
            raise ValueError(f"of names a retriever twice ({', '.join(self.of)})")
        if self.weights and (len(self.weights) != len(self.of) or not any(self.weights)):
            raise ValueError(f"weights: expected {len(self.of)} weights, not all 0; got {len(self.weights)}")
        return self

    @property
    def sources(self) -> tuple[str, ...]:
        return self.of

    @property
    def member_depth(self) -> int:
        return self.depth

    def assemble(self, parts: Assembly) -> Retriever:
        from darklode.pipeline.retrieve.retrievers.fusion import Hybrid

        weights = self.weights or (1.0,) * len(self.of)
        return Hybrid(parts.name, parts.members, weights, self.method, self.depth, parts.corpus.n_chunks)


KIND = HybridKind
