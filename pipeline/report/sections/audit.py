"""The audit: what each retriever finds, what is lost without it, and how alike they are."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Whisker, small_whiskers, stacked, whiskers
from darklode.pipeline.report.drawing import Cell, Chart, Drawing, Matrix
from darklode.pipeline.report.figure import Figure, FigureSection, asked
from darklode.pipeline.report.numbers import number
from darklode.pipeline.report.source import Source

GROUPED = 6
"""More tenants have a small chart each."""
TENANTS = 12
"""Most that are drawn: those with the most queries."""
MOST_ROWS = 100
DEPTHS = 10

ALONE = """
    WITH found AS (
        SELECT retrievers, coalesce(relevance, 0) > 0 AS positive
        FROM pool LEFT JOIN qrels USING (tenant, query_id, chunk_id)
    ), each AS (SELECT unnest(retrievers) AS retriever, len(retrievers) = 1 AS alone, positive FROM found)
    SELECT retriever, count(*) FILTER (positive AND alone) AS positives_it_alone_found,
           count(*) FILTER (positive) AS positives, count(*) FILTER (alone) AS candidates_it_alone_found,
           count(*) AS candidates
    FROM each GROUP BY retriever ORDER BY positives_it_alone_found DESC, positives DESC, retriever
"""


def _audit(table: pa.Table, source: Source) -> list[Drawing]:
    pool, rows = source.settings.pool, table.to_pylist()
    measures = {
        "recall": (f"Recall@{pool.search_depth}, each list alone", "a"),
        "leave_one_out": (f"Recall@{pool.depth} of all the others, without it", "b"),
    }
    together = [row for row in rows if row["tenant"] is None]
    each = [list(same) for tenant, same in groupby(rows, lambda row: row["tenant"]) if tenant is not None]
    many = len(each) > GROUPED
    charts: list[Drawing] = list(_shallow(rows))
    charts += [whiskers(_estimates(together if many else rows, name), *how) for name, how in measures.items()]
    if many:
        order = {row["retriever"]: place for place, row in enumerate(together)}
        drawn = [row for same in each[:TENANTS] for row in sorted(same, key=lambda row: order[row["retriever"]])]
        note = f"The {TENANTS} tenants with the most queries are drawn." if len(each) > TENANTS else ""
        charts += [
            small_whiskers(_estimates(drawn, name), f"{title}, by tenant", tone, note)
            for name, (title, tone) in measures.items()
        ]
    return charts


def _shallow(rows: list[dict[str, Any]]) -> Iterator[Chart]:
    """Recall at ten, of which no interval is known; where lists hold much of the corpus it alone tells them apart."""
    known = [row for row in rows if row["recall_at_10"] is not None]
    if known:
        found = [_whisker(row, [row["recall_at_10"]] * 3) for row in known]
        yield whiskers(sorted(found, key=lambda one: -one.middle), "Recall@10, each list alone", "c")


def _estimates(rows: list[dict[str, Any]], measure: str) -> list[Whisker]:
    several = len({row["tenant"] for row in rows}) > 1
    ends = [[row[f"{measure}{end}"] for end in ("", "_low", "_high")] for row in rows]
    groups = [(row["tenant"] or "all tenants") if several else "" for row in rows]
    return [_whisker(row, three, group) for row, three, group in zip(rows, ends, groups, strict=True)]


def _whisker(row: dict[str, Any], ends: Sequence[float], group: str = "") -> Whisker:
    middle, low, high = ends
    return Whisker(row["retriever"], middle, low, high, f"{number(row['queries'])} queries", group)


def _overlap(table: pa.Table, _source: Source) -> list[Matrix]:
    names = table["retriever"].to_pylist()
    columns = [column.to_pylist() for column in table.columns[1:]]  # in the order of the names, as the rows are
    pairs = [(one, other) for one in range(len(names)) for other in range(len(names))]
    cells = [_cell(names[one], names[other], columns[other][one]) for one, other in pairs]
    return [Matrix(names, [cells[place : place + len(names)] for place in range(0, len(cells), len(names))])]


def _cell(one: str, other: str, jaccard: float | None) -> Cell:
    """A cell of the heat map; its shade is the overlap itself, from 0 to 1, so that equal values look alike."""
    if jaccard is None:
        return Cell("–", None, f"{one} and {other}: neither found any")
    depth = None if one == other else min(DEPTHS - 1, int(jaccard * DEPTHS))
    return Cell(f"{jaccard:.2f}", depth, f"{one} and {other}: {jaccard:.3f}")


SECTION = FigureSection(
    "audit",
    "Retrievers",
    (
        Figure(
            "audit-retrievers",
            "What each retriever finds, and what is lost without it",
            "Dots are means over queries, whiskers their 95 % bootstrap intervals (none is known of recall at 10); the "
            "axis does not begin at 0. A retriever's own positives count toward it, and what no retriever found was "
            "never judged.",
            lambda source: statistics.audit_with_shallow(source.tables),
            _audit,
            ("audit_retrievers",),
            wide=True,
            most=MOST_ROWS,
        ),
        Figure(
            "audit-overlap",
            "Overlap of the retrievers",
            "Of the positives that either of two retrievers found at the pool's depth, the share that both found "
            "(Jaccard). The colour scale runs from 0 (nothing shared) to 1 (the same positives).",
            lambda source: statistics.audit_overlap(source.tables),
            _overlap,
            ("audit_overlap",),
        ),
        Figure(
            "only-one-found",
            "What only one retriever found",
            "Positives of the pool that would be missing without the retriever.",
            asked(ALONE),
            lambda table, _: [
                stacked(
                    table,
                    "retriever",
                    {"positives_it_alone_found": ("positives it alone found", "a")},
                    axis="positives it alone found",
                )
            ],
            ("pool", "qrels"),
        ),
    ),
    of_labels=True,
)
