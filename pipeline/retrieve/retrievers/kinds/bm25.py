"""BM25, by the settings of the section `bm25`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from darklode.pipeline.retrieve.retrievers.kinds import RetrieverKind
from darklode.schemas.pooling import Bm25Settings
from darklode.schemas.settings import Settings

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus
    from darklode.pipeline.retrieve.retrievers.port import Retriever


class Bm25Kind(Bm25Settings, RetrieverKind):
    """BM25; the index is built once per run and tenant."""

    kind: Literal["bm25"] = "bm25"

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """See `RetrieverKind`; the name alone means the section `bm25`."""
        return cls(**settings.bm25.model_dump())

    def __call__(self, corpus: Corpus) -> Retriever:
        """See `RetrieverKind`; equal settings share one index."""
        return corpus.bm25(Bm25Settings(**self._weights()))

    @property
    def identity(self) -> dict[str, Any]:
        """See `RetrieverKind`; the keys alone, as runs have it since there were settings of BM25."""
        return self._weights()

    def _weights(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"kind"})


KIND = Bm25Kind
