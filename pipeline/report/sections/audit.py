"""The audit: what each retriever finds, what is lost without it, and how alike they are."""

from itertools import groupby
from typing import Any

import pyarrow as pa

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Whisker, stacked, whiskers
from darklode.pipeline.report.drawing import AxisScale, Cell, Chart, Matrix
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.numbers import number
from darklode.pipeline.report.source import Source

TENANTS = 6
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


def _audit(table: pa.Table, source: Source) -> list[Chart]:
    depth = source.settings.pool.search_depth
    rows = table.to_pylist()
    return [
        _dots(rows, "recall", f"Recall@{depth}, each list alone", "a"),
        _dots(rows, "leave_one_out", f"Recall@{source.settings.pool.depth} of all the others, without it", "b"),
    ]


def _dots(rows: list[dict[str, Any]], measure: str, title: str, tone: str) -> Chart:
    scopes = [list(scope) for _, scope in groupby(rows, lambda row: row["tenant"])]
    note = f"The first {TENANTS} tenants are drawn." if len(scopes) > TENANTS + 1 else ""
    drawn = [row for scope in scopes[: TENANTS + 1] for row in scope]
    return whiskers([_estimate(row, measure, several=len(scopes) > 1) for row in drawn], title, tone, note)


def _estimate(row: dict[str, Any], measure: str, *, several: bool) -> Whisker:
    middle, low, high = (row[f"{measure}{end}"] for end in ("", "_low", "_high"))
    group = (row["tenant"] or "all tenants") if several else ""
    return Whisker(row["retriever"], middle, low, high, f"{number(row['queries'])} queries", group)


def _overlap(table: pa.Table, _source: Source) -> list[Matrix]:
    names = table["retriever"].to_pylist()
    columns = [column.to_pylist() for column in table.columns[1:]]  # in the order of the names, as the rows are
    pairs = [(one, other) for one in range(len(names)) for other in range(len(names))]
    known = [columns[other][one] for one, other in pairs if one != other and columns[other][one] is not None]
    shades = AxisScale(min(known, default=0), max(known, default=1))
    cells = [_cell(names[one], names[other], columns[other][one], shades) for one, other in pairs]
    return [Matrix(names, [cells[place : place + len(names)] for place in range(0, len(cells), len(names))])]


def _cell(one: str, other: str, jaccard: float | None, shades: AxisScale) -> Cell:
    if jaccard is None:
        return Cell("–", None, f"{one} and {other}: neither found any")
    depth = None if one == other else min(DEPTHS - 1, int(shades.at(jaccard) * DEPTHS / 100))
    return Cell(f"{jaccard:.2f}", depth, f"{one} and {other}: {jaccard:.3f}")


SECTION = FigureSection(
    "audit",
    "Retrievers",
    (
        Figure(
            "audit-retrievers",
            "What each retriever finds, and what is lost without it",
            "Dots are means over queries, whiskers their 95 % bootstrap intervals; the axis does not begin at 0. A "
            "retriever's own positives count toward it, and what no retriever found was never judged.",
            lambda source: statistics.audit_retrievers(source.tables),
            _audit,
            ("audit_retrievers",),
            wide=True,
            most=70,
        ),
        Figure(
            "audit-overlap",
            "Overlap of the retrievers",
            "Of the positives that either of two retrievers found at the pool's depth, the share that both found "
            "(Jaccard); shades run from the least alike of these retrievers to the most alike.",
            lambda source: statistics.audit_overlap(source.tables),
            _overlap,
            ("audit_overlap",),
        ),
        Figure(
            "only-one-found",
            "What only one retriever found",
            "Positives of the pool that would be missing without the retriever.",
            lambda source: source.tables.sql(ALONE),
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
