"""A retriever: chunks by the number of words that they share with the query."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import RetrieverKind
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever


class SharedWords(RetrieverKind):
    """Counts shared words."""

    kind: Literal["shared_words"] = "shared_words"
    shortest: int = Field(3, gt=0, description="shorter words are not counted")

    def __call__(self, corpus: Corpus) -> Retriever:
        return Searcher(corpus, self.shortest)


class Searcher(Retriever):
    name = "shared_words"

    def __init__(self, corpus: Corpus, shortest: int) -> None:
        self._shortest = shortest
        self._chunks = [self._words(text) for batch in corpus.batches() for text in batch]

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        asked = [self._words(query) for query in queries]
        scores = np.array([[len(one & chunk) for chunk in self._chunks] for one in asked], np.float32)
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        best = np.take_along_axis(scores, rows, axis=1)
        return Hits(np.where(best > 0, rows, -1), np.where(best > 0, best, np.nan).astype(np.float32))

    def _words(self, text: str) -> set[str]:
        return {word for word in text.lower().split() if len(word) >= self._shortest}
