"""OpenSearch's `_search`."""

from typing import Literal

from darklode.pipeline.retrieve.retrievers.engine_kind import LuceneKind


class OpenSearchKind(LuceneKind):
    """An index, alias or search template of OpenSearch."""

    kind: Literal["opensearch"] = "opensearch"


KIND = OpenSearchKind
