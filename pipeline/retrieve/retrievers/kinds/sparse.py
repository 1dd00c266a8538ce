"""Learned sparse retrieval (SPLADE)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from darklode.pipeline.retrieve.retrievers.kinds import Assembly, ModelKind

if TYPE_CHECKING:
    from darklode.pipeline.base.models.local import ModelClass
    from darklode.pipeline.retrieve.retrievers.port import Retriever


class SparseKind(ModelKind):
    """Learned sparse retrieval with a `SparseEncoder` of sentence-transformers, such as SPLADE."""

    MODEL_CLASS: ClassVar[ModelClass] = "SparseEncoder"

    kind: Literal["sparse"] = "sparse"

    def assemble(self, parts: Assembly) -> Retriever:
        from darklode.pipeline.base.memory.store import KeyedStore
        from darklode.pipeline.base.models.running import RunningModel
        from darklode.pipeline.retrieve.encoders.encoding_store import EncodingStore
        from darklode.pipeline.retrieve.retrievers.sparse import (
            SPARSE_VECTOR_ROWS,
            SparseModel,
            SparseRetriever,
            encode_chunks,
        )

        store, running = KeyedStore(parts.cache.root, SPARSE_VECTOR_ROWS), RunningModel(self, self.MODEL_CLASS)
        queries, documents = EncodingStore.of_model(store, self.model_id(), running, SparseModel)
        matrix = encode_chunks(documents, parts.corpus.hashed_chunks.iterate_hashes())
        return SparseRetriever(parts.name, queries, matrix)


KIND = SparseKind
