"""What systems reach on the test queries, and how they differ."""

from typing import Any

import pyarrow as pa

from darklode.pipeline.report.charts import Whisker, whiskers
from darklode.pipeline.report.drawing import Chart
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource

DRAWN = 4
"""Measures that are drawn; the table below has them all."""


def _all_tenants(source: ReportSource, table: str) -> pa.Table:
    rows = [row for row in source.tables.read(table).to_pylist() if row.pop("tenant") is None]
    return pa.Table.from_pylist(rows)


def _score_charts(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = [row for row in table.to_pylist() if row["part"] == "counted"]
    shown = list(dict.fromkeys(row["measure"] for row in rows))[:DRAWN]
    return [_dots([row for row in rows if row["measure"] == measure], measure) for measure in shown]


def _dots(rows: list[dict[str, Any]], measure: str) -> Chart:
    upper_bound = rows[0]["ceiling"]
    note = f"No list reaches more than {upper_bound:.3f}." if upper_bound < 1 else ""
    return whiskers([_estimate(row) for row in rows], measure, "a", note)


def _estimate(row: dict[str, Any]) -> Whisker:
    low, high = (row["value"] if row[end] is None else row[end] for end in ("low", "high"))
    return Whisker(row["system"], row["value"], low, high, f"{number(row['queries'])} queries", "")


SECTION = FigureSection(
    "evaluation",
    "Systems on the test queries",
    (
        Figure(
            "evaluation",
            "What each system reaches",
            "Means over the test queries that count, with 95 % bootstrap intervals over groups of queries; the axis "
            "does not begin at 0.",
            lambda source: _all_tenants(source, "evaluation"),
            _score_charts,
            ("evaluation",),
            wide=True,
            max_rows=200,
        ),
        Figure(
            "evaluation-pairs",
            "Every two systems",
            "What a system has more than the other on the same queries; p_holm is corrected for all that is compared "
            "in a part; a true difference below detectable is missed more often than once in five times.",
            lambda source: _all_tenants(source, "evaluation_pairs"),
            needs=("evaluation_pairs",),
            wide=True,
        ),
        Figure(
            "online",
            "What the log itself says",
            "Shares of what was searched, of all and of each arm of an experiment, with 95 % bootstrap intervals over "
            "sessions; an interleaved list is won by the team with most clicks; irrelevant is what the judge says of "
            "a sample of searches (online_verdicts.judge_id; labels of the embedded judge are weak).",
            lambda source: _all_tenants(source, "online"),
            needs=("online",),
        ),
        Figure(
            "online-pairs",
            "Every two arms",
            "What an arm has more than the other; p_holm is corrected for all that is compared.",
            lambda source: _all_tenants(source, "online_pairs"),
            needs=("online_pairs",),
        ),
    ),
    of_labels=True,
)
