"""Retrievers, a file each: a kind's settings, how it is built on a tenant's chunks, and what names it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

from darklode.schemas.pooling import RETRIEVERS, RetrieverSettings
from darklode.schemas.settings import Settings

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.encoders.lsa import TermVectors
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus
    from darklode.pipeline.retrieve.retrievers.port import Retriever


class RetrieverKind(RetrieverSettings):
    """Settings of one kind of retriever, and how they become one: plain data, so that it can travel.

    A kind is named in `pool.retrievers` by its own name, or by a name of the section `retrievers`, where it has
    settings other than its defaults.
    """

    @classmethod
    def from_settings(cls, _settings: Settings) -> Self:
        """The kind as its own name in `pool.retrievers` means it: with its defaults."""
        return cls.model_validate({})

    @abstractmethod
    def __call__(self, corpus: Corpus) -> Retriever:
        """Fit, index or open what is searched; called once for each tenant's chunks."""

    @property
    def identity(self) -> Any:
        """All that can change its lists besides texts and depth: the kind, with its keys where it has any."""
        keys = self.decisive()
        return keys if len(keys) > 1 else self.kind

    @property
    def shares(self) -> str:
        """Kinds that name the same fit the same things on the chunks, and are kept on one machine."""
        return self.kind


class FittedKind(RetrieverKind):
    """A kind whose encoder is fitted on the corpus itself.

    Attributes:
        FEEDBACK: whether the query moves towards the best chunks that BM25 found for it.
    """

    FEEDBACK: ClassVar[bool] = False

    @abstractmethod
    def fit(self, corpus: Corpus) -> TermVectors:
        """The encoder of the corpus."""

    def __call__(self, corpus: Corpus) -> Retriever:
        from threadpoolctl import threadpool_limits

        from darklode.pipeline.retrieve.retrievers.embedded import Dense, Feedback

        with threadpool_limits(1):  # the number of threads would change a fit's last bits
            encoder = self.fit(corpus)
        vectors = corpus.vectors(encoder)
        if self.FEEDBACK:
            return Feedback(self.kind, encoder, vectors, seeds=corpus.seeds)
        return Dense(self.kind, encoder, vectors)

    @property
    def shares(self) -> str:
        """A feedback retriever fits what the one that it is named after fits."""
        return self.kind.removesuffix("_feedback")


def own_retrievers() -> dict[str, RetrieverKind]:
    """Darklode's own kinds with their defaults, by name, BM25 first."""
    return {name: RETRIEVERS.load(name)() for name in RETRIEVERS.own_kinds()}
