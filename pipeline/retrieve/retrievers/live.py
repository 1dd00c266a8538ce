"""Builds retrievers that ask search engines and databases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import LiveKind
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.schemas.settings import CacheSettings

_TRIAL_SECONDS = 10  # retries before a run; during the run, `retry_timeout` counts
_TRIAL_HITS = 10


@dataclass(frozen=True)
class LiveBuilder:
    """Builds the retriever of a search engine; plain data, so that it can travel to another machine.

    Attributes:
        name: the retriever's name in rankings.
        engine: its settings.
        cache: where answers are kept.
    """

    name: str
    engine: LiveKind
    cache: CacheSettings

    def __call__(self, corpus: Corpus) -> Retriever:
        """Open the engine for the corpus's tenant.

        Raises:
            MissingPart: a key or package is missing.
        """
        return self.engine.open(self.name, corpus, self.cache.root)

    @property
    def shares(self) -> str:
        """Its own name: it shares no fitted data with other retrievers."""
        return self.name

    @property
    def identity(self) -> dict[str, Any]:
        """See `LiveKind`."""
        return dict(self.engine.identity)

    def try_query(self, query: str, tenant: str) -> list[str]:
        """Search for one query before a run; a note if it has no hits.

        Raises:
            DarklodeError: the engine does not answer, has no such index, or rejects the request.
        """
        live = self.engine.model_copy(update={"retry_timeout": _TRIAL_SECONDS}).connect(self.name, tenant)
        ((_, (ids, _scores)),) = live.search([query], min(_TRIAL_HITS, self.engine.top_k))
        return [] if ids else [f"retrievers.{self.name}: the first query, {query[:60]!r}, has no hits"]
