"""Interface of query writers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import pyarrow as pa

from darklode.pipeline.base.remote.budget import Counters

ID_PREFIX = "generated-"
"""Prefix of the ids of generated queries."""

INPUT_SCHEMA = pa.schema(
    [
        ("tenant", pa.string()),
        ("chunk_id", pa.string()),
        ("title", pa.string()),
        ("heading", pa.string()),
        ("text", pa.string()),
        ("draw", pa.uint64()),
    ]
)
"""A text to generate a query for; `draw` is its random number, fixed by the seed."""

OUTPUT_SCHEMA = pa.schema([("text", pa.string()), ("error", pa.string()), ("self_contained", pa.bool_())])
"""A query, or the reason why there is none; `self_contained` is null if it was not checked."""


class QueryWriter(ABC):
    """Generates one query per text.

    Attributes:
        generator_id: everything that can change a query, besides text, examples and draw.
        has_cache: replies are cached, so that another writer with this id reuses them.
    """

    generator_id: str
    has_cache: bool = False

    @abstractmethod
    def write(self, texts: pa.Table, examples: list[str], on_progress: Callable[[int], None]) -> pa.Table:
        """Rows of `OUTPUT_SCHEMA`, one per text.

        Args:
            texts: rows of `INPUT_SCHEMA`, of one tenant.
            examples: the tenant's train queries, ordered by id; may be empty.
            on_progress: called with the number of texts done.
        """

    @property
    def counters(self) -> Counters | None:
        """Calls of a remote model so far; None without one."""
        return None

    @property
    def max_workers(self) -> int | None:
        """Maximum number of concurrent workers; None: no limit."""
        return None

    def portion(self, _share: float, _at_once: int) -> QueryWriter:
        """This writer for one of several workers.

        Args:
            _share: this worker's share of the texts, 0 to 1.
            _at_once: number of concurrent workers.
        """
        return self


def query_table(queries: list[str]) -> pa.Table:
    """Rows of `OUTPUT_SCHEMA` from a local writer; an empty query becomes an error."""
    errors = [None if query else "no query was generated" for query in queries]
    queries_or_null = [query or None for query in queries]
    return pa.table([queries_or_null, errors, [None] * len(queries_or_null)], schema=OUTPUT_SCHEMA)
