"""Building a retriever on a tenant's chunks."""

from typing import Protocol

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.port import Retriever


class Factory(Protocol):
    """Builds a retriever on a corpus; a factory for another machine must be picklable."""

    @property
    def shares(self) -> str:
        """Retrievers with the same value share what they fit and are searched together."""
        ...

    def __call__(self, corpus: Corpus) -> Retriever:
        """Fit, index or open the retriever."""
        ...
