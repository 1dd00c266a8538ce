"""Solr's JSON Request API."""

from typing import Literal

from pydantic import Field

from darklode.pipeline.retrieve.retrievers.engine_kind import EngineKind


class SolrKind(EngineKind):
    """A collection of Solr, by its JSON Request API; `fl` must contain id and score."""

    kind: Literal["solr"] = "solr"
    endpoint: str = Field("/solr/{index}/query", description="Path of the search endpoint.")
    hits_path: str = Field("response.docs", description="Path of the list of hits in the reply.")
    id_path: str = Field("id", description="Path of the chunk's or document's id in a hit.")


KIND = SolrKind
