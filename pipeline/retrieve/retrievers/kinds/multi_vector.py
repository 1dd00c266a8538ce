"""Late interaction of token vectors (ColBERT)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.retrieve.retrievers.kinds import Assembly, ModelKind

if TYPE_CHECKING:
    from darklode.pipeline.base.models.local import ModelClass
    from darklode.pipeline.retrieve.retrievers.port import Retriever


class MultiVectorKind(ModelKind):
    """Late interaction with a `MultiVectorEncoder` of sentence-transformers (ColBERT): a reranker, or a search."""

    MODEL_CLASS: ClassVar[ModelClass] = "MultiVectorEncoder"

    kind: Literal["multi_vector"] = "multi_vector"
    of: str | None = Field(
        None, min_length=1, description="Name of the retriever whose hits are reranked. null: search all chunks."
    )
    depth: int = Field(
        100, gt=0, description="Hits to rerank per query, and length of the list; without effect if `of` is null."
    )

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.of,) if self.of else ()

    @property
    def member_depth(self) -> int:
        return self.depth if self.of else 0

    def assemble(self, parts: Assembly) -> Retriever:
        """See `CompositeKind`.

        Raises:
            SettingsError: the corpus is too large to be searched as a whole.
        """
        from darklode.pipeline.base.memory.store import KeyedStore
        from darklode.pipeline.base.models.running import RunningModel
        from darklode.pipeline.retrieve.encoders.encoding_store import EncodingStore
        from darklode.pipeline.retrieve.retrievers import multi_vector
        from darklode.pipeline.retrieve.retrievers.rerank import Reranked

        corpus, n_chunks = parts.corpus, parts.corpus.n_chunks
        if not parts.members and n_chunks > multi_vector.MAX_CHUNKS:
            raise SettingsError(
                f"retrievers.{parts.name}: {n_chunks:,} chunks are too many to search by token vectors (at most "
                f"{multi_vector.MAX_CHUNKS:,}, about 30 kB each); name a retriever to rerank: of: bm25"
            )
        store = KeyedStore(parts.cache.root, multi_vector.TOKEN_VECTOR_ROWS)
        running = RunningModel(self, self.MODEL_CLASS)
        model = multi_vector.MultiVectorModel
        queries, documents = EncodingStore.of_model(store, self.model_id(), running, model)
        if parts.members:
            scorer = multi_vector.MaxSimScorer(corpus, queries, documents)
            return Reranked(parts.name, parts.members[0], self.depth, scorer, n_chunks)
        path = corpus.scratch / f"tokens-{parts.name.replace('/', '-')}.i16"
        chunks = multi_vector.encode_chunks(documents, corpus.hashed_chunks.iterate_hashes(), path)
        return multi_vector.MultiVectorSearch(parts.name, queries, chunks)


KIND = MultiVectorKind
