"""Elasticsearch's `_search`."""

from typing import Literal

from pydantic import Field

from darklode.pipeline.retrieve.retrievers.engine_kind import LuceneKind
from darklode.schemas.section import NoRow


class ElasticsearchKind(LuceneKind):
    """An index, alias or search template of Elasticsearch."""

    kind: Literal["elasticsearch"] = "elasticsearch"
    auth_header: NoRow[str] = Field("Authorization: ApiKey {key}", description="Header that carries the key.")


KIND = ElasticsearchKind
