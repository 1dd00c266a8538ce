"""The audit: what each retriever finds, what is lost without it, and how alike they are."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Whisker, small_whiskers, stacked_bars, whiskers
from darklode.pipeline.report.drawing import Chart, Drawing, Matrix, MatrixCell
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource

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


def _audit(table: pa.Table, source: ReportSource) -> list[Drawing]:
    pool, rows = source.settings.pool, table.to_pylist()
    measures = {
        "recall": (f"Recall@{pool.search_depth}, each list alone", "a"),
        "leave_one_out": (f"Recall@{pool.depth} of all the others, without it", "b"),
    }
    together = [row for row in rows if row["tenant"] is None]
    each = [list(same) for tenant, same in groupby(rows, lambda row: row["tenant"]) if tenant is not None]
    many = len(each) > GROUPED
    charts: list[Drawing] = list(_recall_at_ten(rows))
    charts += [whiskers(_estimates(together if many else rows, name), *how) for name, how in measures.items()]
    if many:
        order = {row["retriever"]: position for position, row in enumerate(together)}
        drawn = [row for same in each[:TENANTS] for row in sorted(same, key=lambda row: order[row["retriever"]])]
        note = f"The {TENANTS} tenants with the most queries are drawn." if len(each) > TENANTS else ""
        charts += [
            small_whiskers(_estimates(drawn, name), f"{title}, by tenant", tone, note)
            for name, (title, tone) in measures.items()
        ]
    return charts


def _recall_at_ten(rows: list[dict[str, Any]]) -> Iterator[Chart]:
    """Recall at ten, of which no interval is known; where lists hold much of the corpus it alone tells them apart."""
    rows_with_recall = [row for row in rows if row["recall_at_10"] is not None]
    if rows_with_recall:
        whisker_rows = [_whisker(row, [row["recall_at_10"]] * 3) for row in rows_with_recall]
        yield whiskers(sorted(whisker_rows, key=lambda whisker: -whisker.middle), "Recall@10, each list alone", "c")


def _estimates(rows: list[dict[str, Any]], measure: str) -> list[Whisker]:
    several = len({row["tenant"] for row in rows}) > 1
    ends = [[row[f"{measure}{end}"] for end in ("", "_low", "_high")] for row in rows]
    groups = [(row["tenant"] or "all tenants") if several else "" for row in rows]
    return [_whisker(row, three, group) for row, three, group in zip(rows, ends, groups, strict=True)]


def _whisker(row: dict[str, Any], ends: Sequence[float], group: str = "") -> Whisker:
    middle, low, high = ends
    return Whisker(row["retriever"], middle, low, high, f"{number(row['queries'])} queries", group)


def _overlap(table: pa.Table, _source: ReportSource) -> list[Matrix]:
    names = table["retriever"].to_pylist()
    columns = [column.to_pylist() for column in table.columns[1:]]  # in the order of the names, as the rows are
    pairs = [(row_name, other) for row_name in range(len(names)) for other in range(len(names))]
    cells = [_cell(names[row_name], names[other], columns[other][row_name]) for row_name, other in pairs]
    return [Matrix(names, [cells[start : start + len(names)] for start in range(0, len(cells), len(names))])]


def _cell(row_name: str, other: str, jaccard: float | None) -> MatrixCell:
    """A cell of the heat map; its shade is the overlap itself, from 0 to 1, so that equal values look alike."""
    if jaccard is None:
        return MatrixCell("–", None, f"{row_name} and {other}: neither found any")
    depth = None if row_name == other else min(DEPTHS - 1, int(jaccard * DEPTHS))
    return MatrixCell(f"{jaccard:.2f}", depth, f"{row_name} and {other}: {jaccard:.3f}")


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
            max_rows=MOST_ROWS,
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
            sql_source(ALONE),
            lambda table, _: [
                stacked_bars(
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
