"""A whole document for display, with one of its chunks marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

DOCUMENT_SQL = """
    SELECT d.doc_id, d.title, d.url, d.source, d.text, c."start", c."end"
    FROM documents d LEFT JOIN chunks c ON c.tenant = d.tenant AND c.doc_id = d.doc_id AND c.chunk_id = $chunk_id
    WHERE d.tenant = $tenant AND d.doc_id = $doc_id
"""
"""SQL of a document and the position of one of its chunks, for `DocumentExcerpt.from_row`."""

MAX_CONTEXT_CHARACTERS = 100_000
"""Maximum number of characters shown before and after the chunk."""


@dataclass(frozen=True)
class DocumentExcerpt:
    """A document to read.

    Attributes:
        before, chunk, after: its text; `chunk` is empty if none was requested or found.
        cut: characters left out at the beginning and at the end.
    """

    doc_id: str
    title: str | None
    url: str | None
    source: str
    before: str
    chunk: str
    after: str
    cut: tuple[int, int]

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """From a row of `DOCUMENT_SQL`."""
        text, start, end = row["text"], row["start"] or 0, row["end"] or 0
        first, last = max(0, start - MAX_CONTEXT_CHARACTERS), min(len(text), end + MAX_CONTEXT_CHARACTERS)
        return cls(
            row["doc_id"],
            row["title"],
            row["url"],
            row["source"],
            text[first:start],
            text[start:end],
            text[end:last],
            (first, len(text) - last),
        )
