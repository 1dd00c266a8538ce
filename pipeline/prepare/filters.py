"""Results of cleaning filters, and the filters by length and for exact duplicates.

The filters by noise and language and cluster sampling are in `noise`, `language` and `cluster_sampling`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.schemas.settings import CleanSettings


@dataclass(frozen=True)
class FilterResult:
    """Result of a filter: all of its input queries, and which of them are dropped and why.

    Attributes:
        queries: all input queries, possibly with new columns.
        reasons: why each query is dropped; null if it is kept.
        represented_by: query_id of the kept query that represents a dropped one; null if there is none.
        facts: values for the stage's manifest.
    """

    queries: pa.Table
    reasons: pa.Array
    represented_by: pa.Array
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_dropped(self) -> pa.Array:
        """Whether each query is dropped."""
        return pc.is_valid(self.reasons)

    @classmethod
    def all_kept(cls, queries: pa.Table) -> "FilterResult":
        """The result that keeps every query."""
        nulls = pa.nulls(queries.num_rows, pa.string())
        return cls(queries, nulls, nulls)

    @classmethod
    def by_reason(cls, queries: pa.Table, reasons: pa.Array | pa.ChunkedArray) -> "FilterResult":
        """The result that drops each query with a reason; no query represents another."""
        return cls(queries, flat(reasons), pa.nulls(queries.num_rows, pa.string()))

    @classmethod
    def by_representative(
        cls,
        queries: pa.Table,
        kept_for: NDArray[np.int64],
        reason: str,
        represented_by: NDArray[np.int64] | None = None,
        facts: Mapping[str, float] | None = None,
    ) -> "FilterResult":
        """The result that drops each query for which another row is kept.

        Args:
            queries: all input queries.
            kept_for: for each query the row that is kept in its place; its own row number if it is kept.
            reason: reason of the dropped queries.
            represented_by: for each query the row that represents it, −1 for none; None: the row in `kept_for`.
            facts: values for the stage's manifest.
        """
        dropped = kept_for != np.arange(queries.num_rows)
        represented_by = kept_for if represented_by is None else represented_by
        ids = flat(queries["query_id"]).take(pa.array(represented_by, mask=represented_by < 0))
        null = pa.scalar(None, pa.string())
        reasons = pc.if_else(pa.array(dropped), reason, null)
        return cls(queries, reasons, pc.if_else(pa.array(dropped), ids, null), facts or {})

    def rejects(self) -> pa.Table:
        """The dropped queries in the columns of `rejects`."""
        dropped = self.queries.filter(self.is_dropped)
        columns = {
            "tenant": dropped["tenant"],
            "id": dropped["query_id"],
            "payload": dropped["text"],
            "reason": self.reasons.filter(self.is_dropped),
            "represented_by": self.represented_by.filter(self.is_dropped),
        }
        return pa.table(columns)


def drop_extremes(queries: pa.Table, settings: CleanSettings) -> FilterResult:
    """Drop queries outside the percentiles of word counts of their tenant and language; bounds are inclusive.

    Source: DevRev-Search, 3.1 (1): bottom and top 25 %.
    """
    words = queries["n_words"].to_numpy()
    low = np.zeros(len(words))
    high = np.zeros(len(words))
    for rows in rows_by(pc.binary_join_element_wise(queries["tenant"], queries["spoken"], "\x00")):
        low[rows], high[rows] = np.percentile(words[rows], [settings.min_percentile, settings.max_percentile])
    null = pa.scalar(None, pa.string())
    reasons = pc.if_else(pa.array(words < low), "too short", pc.if_else(pa.array(words > high), "too long", null))
    return FilterResult.by_reason(queries, reasons)


def drop_duplicates(queries: pa.Table, settings: CleanSettings) -> FilterResult:
    """Keep the first of each tenant's equal queries (DevRev-Search, 3.1 (3)).

    Queries are equal if their texts are, ignoring case, Unicode variants (NFKC) and white space.
    """
    if not settings.deduplicate or not queries.num_rows:
        return FilterResult.all_kept(queries)
    text = pc.utf8_lower(pc.utf8_normalize(flat(queries["text"]), form="NFKC"))
    text = pc.utf8_trim_whitespace(pc.replace_substring_regex(text, r"\s+", " "))
    keys = pc.binary_join_element_wise(queries["tenant"], text, "\x00")
    codes = flat(keys).dictionary_encode().indices.to_numpy()
    _, first_rows = np.unique(codes, return_index=True)
    return FilterResult.by_representative(queries, first_rows[codes], "duplicate")


def flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one contiguous array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def rows_by(column: pa.Array | pa.ChunkedArray) -> Iterator[NDArray[np.int64]]:
    """Yield the ascending row numbers of each distinct value; values come in order of first appearance."""
    codes = flat(column).dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else ()
