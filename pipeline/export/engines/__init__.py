"""Vectors, ids and texts as search engines load them, one short file an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

LINE = "text_id, doc_id, title, heading, text, semantic_id, vector, id"
"""Columns of a point: its words (nullable), its semantic id, its vector, and its id as a UUID."""

Definition = dict[str, Any]


@dataclass(frozen=True)
class Engine:
    """How points are written.

    Attributes:
        line: SQL of what stands for one point, of the columns `LINE`; without its end of line.
        before: begins each file.
        between: stands between two points.
        after: ends each file.
        ending: of the files' names.
        definition: what the engine is told first, by the number of dimensions: a file's name and what is in it.
        loading: Markdown on how to load the folder.
    """

    line: str
    before: bytes
    between: bytes
    after: bytes
    ending: str
    definition: Callable[[int], tuple[str, Definition]]
    loading: str


def engines() -> Mapping[str, Engine]:
    """The engines by name."""
    from darklode.pipeline.export.engines.opensearch import OPENSEARCH
    from darklode.pipeline.export.engines.qdrant import QDRANT

    return {"opensearch": OPENSEARCH, "qdrant": QDRANT}
