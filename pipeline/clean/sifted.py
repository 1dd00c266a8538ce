"""What a filter answers: for each query a reason to drop it, or none, and who stands for it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

PAYLOAD_CHARACTERS = 500


@dataclass(frozen=True)
class Sifted:
    """Queries with a verdict for each.

    Attributes:
        queries: all of them, dropped ones too, perhaps with new columns.
        reasons: why each is dropped; null: it stays.
        represented_by: query_id of the kept query that stands for it; null: none does.
    """

    queries: pa.Table
    reasons: pa.Array
    represented_by: pa.Array

    @property
    def dropped(self) -> pa.Array:
        return pc.is_valid(self.reasons)

    @classmethod
    def all_kept(cls, queries: pa.Table) -> "Sifted":
        nothing = pa.nulls(queries.num_rows, pa.string())
        return cls(queries, nothing, nothing)

    @classmethod
    def by_reason(cls, queries: pa.Table, reasons: pa.Array | pa.ChunkedArray) -> "Sifted":
        return cls(queries, flat(reasons), pa.nulls(queries.num_rows, pa.string()))

    @classmethod
    def by_representative(cls, queries: pa.Table, representative: NDArray[np.int64], reason: str) -> "Sifted":
        """Drop every query whose representative (a row number of `queries`) is another than itself."""
        dropped = pa.array(representative != np.arange(queries.num_rows))
        ids = flat(queries["query_id"]).take(pa.array(representative))
        nothing = pa.scalar(None, pa.string())
        return cls(queries, pc.if_else(dropped, reason, nothing), pc.if_else(dropped, ids, nothing))

    def rejects(self) -> pa.Table:
        """The dropped queries, as columns of `rejects`."""
        gone = self.queries.filter(self.dropped)
        columns = {
            "tenant": gone["tenant"],
            "id": gone["query_id"],
            "payload": pc.utf8_slice_codeunits(gone["text"], 0, PAYLOAD_CHARACTERS),
            "reason": self.reasons.filter(self.dropped),
            "represented_by": self.represented_by.filter(self.dropped),
        }
        return pa.table(columns)


def flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one contiguous array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def credit(sifted: Sifted) -> pa.Table:
    """The kept queries, each credited with the raw queries of those it stands for."""
    kept = sifted.queries.filter(pc.invert(sifted.dropped))
    lent = sifted.queries.filter(pc.is_valid(sifted.represented_by))
    if not lent.num_rows:
        return kept
    by = sifted.represented_by.filter(pc.is_valid(sifted.represented_by))
    loans = pa.table({"tenant": lent["tenant"], "query_id": by, "lent": lent["n_represented"]})
    sums = loans.group_by(["tenant", "query_id"]).aggregate([("lent", "sum")])
    rows = kept.select(["tenant", "query_id"]).append_column("row", pa.array(np.arange(kept.num_rows)))
    joined = rows.join(sums, ["tenant", "query_id"]).sort_by("row")
    total = pc.add(kept["n_represented"], pc.fill_null(joined["lent_sum"], 0))
    return kept.set_column(kept.schema.get_field_index("n_represented"), "n_represented", total)


def name_survivors(dropped: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    """Rejects by step, each naming a query that was kept: one that went later passes its own representative on."""
    later = pa.table(
        {"tenant": pa.array([], pa.string()), "id": pa.array([], pa.string()), "by": pa.array([], pa.string())}
    )
    for step, gone in reversed(list(dropped)):
        rows = gone.append_column("row", pa.array(np.arange(gone.num_rows)))
        heirs = rows.join(later, ["tenant", "represented_by"], ["tenant", "id"]).sort_by("row")
        final = pc.coalesce(heirs["by"], heirs["represented_by"])
        named = gone.set_column(gone.schema.get_field_index("represented_by"), "represented_by", final)
        mine = named.select(["tenant", "id", "represented_by"]).rename_columns(["tenant", "id", "by"])
        later = pa.concat_tables([later, mine.filter(pc.is_valid(mine["by"]))])
        yield step, named
