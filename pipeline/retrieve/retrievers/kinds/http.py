"""Any search engine with JSON requests and replies over HTTP."""

from typing import Literal

from darklode.pipeline.retrieve.retrievers.engine_kind import EngineKind


class HttpKind(EngineKind):
    """Any search engine with JSON requests and replies over HTTP."""

    kind: Literal["http"] = "http"


KIND = HttpKind
