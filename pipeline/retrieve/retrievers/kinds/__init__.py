"""Kinds of retrievers, one file each: the settings of a kind, and how it is built on a tenant's chunks."""

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
    """Settings of a kind of retriever, and its builder. Plain data, so that it can be pickled for other machines.

    A kind is named in `pool.retrievers` by its own name, or by a name of the section `retrievers`, where it has
    settings other than its defaults.
    """

    @classmethod
    def from_settings(cls, _settings: Settings) -> Self:
        """The kind with its defaults, which its own name in `pool.retrievers` refers to."""
        return cls.model_validate({})

    @abstractmethod
    def __call__(self, corpus: Corpus) -> Retriever:
        """Build the retriever: fit, index or open what it searches; called once per tenant."""

    @property
    def identity(self) -> Any:
        """Everything besides texts and depth that can change the hits: the kind, and its settings if it has any."""
        keys = self.decisive()
        return keys if len(keys) > 1 else self.kind

    @property
    def shares(self) -> str:
        """Kinds with the same value share fitted data and are searched on one machine."""
        return self.kind


class FittedKind(RetrieverKind):
    """A kind whose encoder is fitted on the corpus itself.

    Attributes:
        FEEDBACK: use pseudo-relevance feedback, see `Feedback`.
    """

    FEEDBACK: ClassVar[bool] = False

    @abstractmethod
    def fit(self, corpus: Corpus) -> TermVectors:
        """Fit the encoder on the corpus."""

    def __call__(self, corpus: Corpus) -> Retriever:
        from threadpoolctl import threadpool_limits

        from darklode.pipeline.retrieve.retrievers.embedded import Dense, Feedback

        with threadpool_limits(1):  # sums depend on the number of threads in their last bits
            encoder = self.fit(corpus)
        vectors = corpus.vectors(encoder)
        if self.FEEDBACK:
            return Feedback(self.kind, encoder, vectors, seeds=corpus.seeds)
        return Dense(self.kind, encoder, vectors)

    @property
    def shares(self) -> str:
        """A feedback retriever shares fitted data with the retriever of the same name without feedback."""
        return self.kind.removesuffix("_feedback")


def own_retrievers() -> dict[str, RetrieverKind]:
    """Darklode's own kinds with their defaults, by name, BM25 first."""
    return {name: RETRIEVERS.load(name)() for name in RETRIEVERS.own_kinds()}
