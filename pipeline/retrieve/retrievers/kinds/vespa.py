"""Vespa's query API."""

from typing import Literal

from pydantic import Field

from darklode.pipeline.retrieve.retrievers.engine_kind import EngineKind


class VespaKind(EngineKind):
    """A Vespa application; its ids are of a field, because `id` names the document with namespace and type."""

    LIST_OPTIONAL = True  # a query without hits has no `children`

    kind: Literal["vespa"] = "vespa"
    endpoint: str = Field("/search/", description="Path of the search endpoint.")
    hits_path: str = Field("root.children", description="Path of the list of hits in the reply.")
    score_path: str = Field("relevance", description="Path of the score in a hit.")


KIND = VespaKind
