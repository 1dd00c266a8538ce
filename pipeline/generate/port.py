"""What a writer of queries is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import pyarrow as pa

from darklode.pipeline.base.remote.budget import Counters

PREFIX = "generated-"
"""How the id of a generated query begins, wherever it is taken to."""

ASKED = pa.schema(
    [
        ("tenant", pa.string()),
        ("chunk_id", pa.string()),
        ("title", pa.string()),
        ("heading", pa.string()),
        ("text", pa.string()),
        ("draw", pa.uint64()),
    ]
)
"""A text to write a query for; `draw` is its own random number, the same in every run of one seed."""

WRITTEN = pa.schema([("text", pa.string()), ("error", pa.string()), ("self_contained", pa.bool_())])
"""A query, or why there is none; null: its writer was not asked whether it can be understood alone."""


class QueryWriter(ABC):
    """Writes one query for a text.

    Attributes:
        generator_id: names all that can change what is written, besides text, examples and draw.
        keeps: whether what it wrote lies in the cache, where every writer of its id finds it.
    """

    generator_id: str
    keeps: bool = False

    @abstractmethod
    def write(self, texts: pa.Table, examples: list[str], on_progress: Callable[[int], None]) -> pa.Table:
        """Rows of `WRITTEN`, one for each text.

        Args:
            texts: rows of `ASKED`, of one tenant.
            examples: the tenant's own train queries, by their id; may be empty.
            on_progress: is told how many texts are done, now and then.
        """

    @property
    def counters(self) -> Counters | None:
        """What a remote model was asked so far; None: there is none."""
        return None

    @property
    def max_workers(self) -> int | None:
        """How many workers at once it can serve; None: any number."""
        return None

    def portion(self, _share: float, _at_once: int) -> QueryWriter:
        """The same writer for one of several workers.

        Args:
            _share: of all that they write, 0 to 1.
            _at_once: how many write at once.
        """
        return self


def query_table(queries: list[str]) -> pa.Table:
    """Rows of `WRITTEN` by a writer that is not asked again; an empty query is none."""
    errors = [None if query else "nothing was written" for query in queries]
    queries_or_null = [query or None for query in queries]
    return pa.table([queries_or_null, errors, [None] * len(queries_or_null)], schema=WRITTEN)
