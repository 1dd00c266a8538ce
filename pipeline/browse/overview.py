"""Row counts of a run's lists by their main columns, for the overview page."""

from __future__ import annotations

from dataclasses import dataclass

from darklode.pipeline.base.types import Row
from darklode.pipeline.browse.catalogue import Catalogue

MAX_ROWS = 50


@dataclass(frozen=True)
class TableCount:
    """Row counts of a list, grouped by one or two of its filters.

    Attributes:
        key: path of the list.
        by: names of the filters.
        rows: a value per filter, and `n`.
    """

    key: str
    title: str
    by: tuple[str, ...]
    rows: list[Row]


_COUNTED_LISTS = (
    ("queries", "Queries by tenant and split", ("tenant", "split"), "all_queries"),
    ("pairs", "Pairs by verdict", ("outcome",), "pairs"),
    ("triplets", "Triplets by split and source", ("split", "source"), "all_triplets"),
    ("rejects", "Rejects by stage and reason", ("stage", "reason"), "all_rejects"),
)


def _lists(catalogue: Catalogue) -> list[tuple[str, str, tuple[str, ...], str]]:
    """The lists that the run has: a mined run has no pairs."""
    return [row for row in _COUNTED_LISTS if not (row[0] == "pairs" and catalogue.mined)]


def table_counts(catalogue: Catalogue) -> list[TableCount]:
    """Counts of a run's lists, in data order."""
    counts = []
    for key, title, by, table in _lists(catalogue):
        group_columns = ", ".join(by)
        order = f"{by[0]}, n DESC, {group_columns}" if key == "rejects" else group_columns
        selection = f"SELECT {group_columns}, count(*) AS n FROM {table} GROUP BY {group_columns}"
        sql = f"{selection} ORDER BY {order} LIMIT {MAX_ROWS}"
        counts.append(TableCount(key, title, by, catalogue.rows(sql)))
    return counts


def sizes(catalogue: Catalogue) -> dict[str, int]:
    """Number of rows of each list, by path."""
    return {key: catalogue.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"] for key, _, _, table in _lists(catalogue)}
