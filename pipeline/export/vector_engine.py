"""The body format of a search engine's bulk loading interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

POINT_COLUMNS = "text_id, doc_id, title, heading, text, semantic_id, vector, id"
"""Columns of a point: its texts (nullable), its semantic id, its vector, and its id as a UUID."""

Definition = dict[str, Any]


@dataclass(frozen=True)
class Engine:
    """How points are written for a search engine.

    Attributes:
        line: SQL expression of the columns `POINT_COLUMNS` that gives a point as JSON, without a line break.
        before: first bytes of each file.
        between: separator of points.
        after: last bytes of each file.
        ending: file name extension.
        definition: maps the number of dimensions to the file that creates the index or collection: name and content.
        loading: Markdown on how to load the folder.
    """

    line: str
    before: bytes
    between: bytes
    after: bytes
    ending: str
    definition: Callable[[int], tuple[str, Definition]]
    loading: str
