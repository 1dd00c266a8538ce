"""Report section of the retriever audit: recall, leave-one-out recall and overlap."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Whisker, small_whiskers, stacked_bars, whiskers
from darklode.pipeline.report.drawing import Chart, Drawing, Matrix, MatrixCell
from darklode.pipeline.report.evaluations import all_tenants
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource

MAX_GROUPED_TENANTS = 6
"""Above this number, each tenant has its own small chart."""
MAX_TENANTS = 12
"""Maximum number of tenants drawn: those with the most queries."""
MAX_ROWS = 100
N_SHADES = 10
"""Shades of the heat map; the page's style sheet has a class for each value of `MatrixCell.depth`."""

UNIQUE_POSITIVES_SQL = """
    WITH labelled_pool AS (
        SELECT retrievers, coalesce(relevance, 0) > 0 AS positive
        FROM pool LEFT JOIN qrels USING (tenant, query_id, chunk_id)
    ), retriever_candidates AS (
        SELECT unnest(retrievers) AS retriever, len(retrievers) = 1 AS is_unique, positive FROM labelled_pool
    )
    SELECT retriever, count(*) FILTER (positive AND is_unique) AS unique_positives,
           count(*) FILTER (positive) AS positives, count(*) FILTER (is_unique) AS unique_candidates,
           count(*) AS candidates
    FROM retriever_candidates GROUP BY retriever ORDER BY unique_positives DESC, positives DESC, retriever
"""


def _audit(table: pa.Table, source: ReportSource) -> list[Drawing]:
    pool, rows = source.settings.pool, table.to_pylist()
    measures = {
        "recall": (f"Recall@{pool.search_depth} of each retriever", "a"),
        "leave_one_out": (f"Recall@{pool.depth} of the pool without the retriever", "b"),
    }
    overall = [row for row in rows if row["tenant"] is None]
    by_tenant = [list(group) for tenant, group in groupby(rows, lambda row: row["tenant"]) if tenant is not None]
    has_many_tenants = len(by_tenant) > MAX_GROUPED_TENANTS
    charted_rows = overall if has_many_tenants else rows
    charts: list[Drawing] = list(_recall_at_ten(rows))
    charts += [whiskers(_estimates(charted_rows, name), title, tone) for name, (title, tone) in measures.items()]
    if has_many_tenants:
        order = {row["retriever"]: position for position, row in enumerate(overall)}
        drawn = [
            row
            for tenant_rows in by_tenant[:MAX_TENANTS]
            for row in sorted(tenant_rows, key=lambda row: order[row["retriever"]])
        ]
        note = f"The {MAX_TENANTS} tenants with the most queries." if len(by_tenant) > MAX_TENANTS else ""
        charts += [
            small_whiskers(_estimates(drawn, name), f"{title}, by tenant", tone, note)
            for name, (title, tone) in measures.items()
        ]
    return charts


def _recall_at_ten(rows: list[dict[str, Any]]) -> Iterator[Chart]:
    """Chart of Recall@10, which has no interval; it distinguishes retrievers even in a small corpus."""
    rows_with_recall = [row for row in rows if row["recall_at_10"] is not None]
    if rows_with_recall:
        whisker_rows = [_whisker(row, [row["recall_at_10"]] * 3) for row in rows_with_recall]
        yield whiskers(sorted(whisker_rows, key=lambda whisker: -whisker.middle), "Recall@10 of each retriever", "c")


def _estimates(rows: list[dict[str, Any]], measure: str) -> list[Whisker]:
    """A measure of each row with its interval, grouped by tenant if there are several."""
    has_several_tenants = len({row["tenant"] for row in rows}) > 1
    intervals = [[row[f"{measure}{suffix}"] for suffix in ("", "_low", "_high")] for row in rows]
    groups = [(row["tenant"] or "all tenants") if has_several_tenants else "" for row in rows]
    return [_whisker(row, interval, group) for row, interval, group in zip(rows, intervals, groups, strict=True)]


def _whisker(row: dict[str, Any], interval: Sequence[float], group: str = "") -> Whisker:
    """Whisker of a retriever; `interval`: estimate, lower and upper bound."""
    middle, low, high = interval
    return Whisker(row["retriever"], middle, low, high, f"{number(row['queries'])} queries", group)


def _overlap(table: pa.Table, _source: ReportSource) -> list[Matrix]:
    names = table["retriever"].to_pylist()
    columns = [column.to_pylist() for column in table.columns[1:]]  # columns and rows have the same order
    cells = [
        [_cell(row_name, other, column[row]) for other, column in zip(names, columns, strict=True)]
        for row, row_name in enumerate(names)
    ]
    return [Matrix(names, cells)]


def _cell(row_name: str, other: str, jaccard: float | None) -> MatrixCell:
    """A cell of the heat map; the shade is absolute, so it is comparable between runs."""
    if jaccard is None:
        return MatrixCell("–", None, f"{row_name} and {other}: neither found a positive")
    depth = None if row_name == other else min(N_SHADES - 1, int(jaccard * N_SHADES))
    return MatrixCell(f"{jaccard:.2f}", depth, f"{row_name} and {other}: {jaccard:.3f}")


SECTION = FigureSection(
    "audit",
    "Retrievers",
    (
        Figure(
            "audit-retrievers",
            "Recall of each retriever, and of the pool without it",
            "Means over queries with 95 % bootstrap intervals (Recall@10 has none); the axis may not start at 0. "
            "Recall is relative to the judged positives of the pool: texts that no retriever found were never judged.",
            lambda source: statistics.audit_with_recall_at_10(source.tables),
            _audit,
            ("audit_retrievers",),
            wide=True,
            max_rows=MAX_ROWS,
        ),
        Figure(
            "corrected-audit",
            "Recall of each retriever corrected by people's labels",
            "judge_only is the value by the judge's labels alone. value, low and high (95 % interval) are corrected by "
            "people's labels of the review sample; empty with too few labels that matter to the figure. R (pooled) is "
            "the recall of the relevant pairs of all queries together.",
            lambda source: all_tenants(source.tables, "corrected_audit"),
            needs=("corrected_audit",),
            wide=True,
            max_rows=200,
        ),
        Figure(
            "audit-overlap",
            "Retriever overlap",
            "Jaccard index of the positives that two retrievers found within the pool's depth, from 0 (none in "
            "common) to 1 (the same positives).",
            lambda source: statistics.audit_overlap(source.tables),
            _overlap,
            ("audit_overlap",),
        ),
        Figure(
            "only-one-found",
            "Unique positives per retriever",
            "Positives that only this retriever found within the pool's depth.",
            sql_source(UNIQUE_POSITIVES_SQL),
            lambda table, _: [
                stacked_bars(
                    table, "retriever", {"unique_positives": ("unique positives", "a")}, axis="unique positives"
                )
            ],
            ("pool", "qrels"),
        ),
    ),
    of_labels=True,
)
