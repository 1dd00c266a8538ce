"""Qdrant's query API."""

from typing import Literal

from pydantic import Field

from darklode.pipeline.retrieve.retrievers.engine_kind import EngineKind
from darklode.schemas.section import NoRow


class QdrantKind(EngineKind):
    """A collection of Qdrant that embeds the query itself (server-side inference)."""

    kind: Literal["qdrant"] = "qdrant"
    endpoint: str = Field("/collections/{index}/points/query", description="Path of the search endpoint.")
    hits_path: str = Field("result.points", description="Path of the list of hits in the reply.")
    id_path: str = Field("id", description="Path of the chunk's or document's id in a hit, such as payload.doc_id.")
    auth_header: NoRow[str] = Field("api-key: {key}", description="Header that carries the key.")


KIND = QdrantKind
