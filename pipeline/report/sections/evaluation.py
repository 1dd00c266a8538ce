"""Report section of `darklode evaluate`."""

from typing import Any

import pyarrow as pa

from darklode.pipeline.report.charts import Whisker, whiskers
from darklode.pipeline.report.drawing import Chart
from darklode.pipeline.report.evaluations import all_tenants
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource

MAX_CHARTS = 4
"""Number of measures drawn; the table has all."""


def _score_charts(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = [row for row in table.to_pylist() if row["part"] == "counted"]
    shown = list(dict.fromkeys(row["measure"] for row in rows))[:MAX_CHARTS]
    return [_dots([row for row in rows if row["measure"] == measure], measure) for measure in shown]


def _dots(rows: list[dict[str, Any]], measure: str) -> Chart:
    upper_bound = rows[0]["ceiling"]
    note = f"Maximum possible: {upper_bound:.3f}." if upper_bound < 1 else ""
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
            "Scores",
            "Means over the counted test queries with 95 % bootstrap intervals over query clusters; the axis may not "
            "start at 0.",
            lambda source: all_tenants(source.tables, "evaluation"),
            _score_charts,
            ("evaluation",),
            wide=True,
            max_rows=200,
        ),
        Figure(
            "evaluation-pairs",
            "Paired differences",
            "Difference between two systems on the same queries. p_holm is corrected for all comparisons of a part. "
            "True differences below detectable are missed with a probability above 20 % (power below 80 %).",
            lambda source: all_tenants(source.tables, "evaluation_pairs"),
            needs=("evaluation_pairs",),
            wide=True,
        ),
        Figure(
            "corrected-evaluation",
            "Scores and differences corrected by people's labels",
            "judge_only is the value by the judge's labels alone. value, low and high (95 % interval) are corrected by "
            "people's labels of the review sample; empty with too few labels that matter to the figure. R (pooled) is "
            "the recall of the relevant pairs of all queries together.",
            lambda source: all_tenants(source.tables, "corrected_evaluation"),
            needs=("corrected_evaluation",),
            wide=True,
            max_rows=200,
        ),
        Figure(
            "online",
            "Online measures of the log",
            "Shares over all searches and per experiment variant, with 95 % bootstrap intervals over sessions. An "
            "interleaved list is won by the variant with more clicks. irrelevant is judged on a sample of searches "
            "(online_verdicts.judge_id; labels of the embedded judge are weak).",
            lambda source: all_tenants(source.tables, "online"),
            needs=("online",),
        ),
        Figure(
            "online-pairs",
            "Differences between variants",
            "Difference between two experiment variants; p_holm is corrected for all comparisons.",
            lambda source: all_tenants(source.tables, "online_pairs"),
            needs=("online_pairs",),
        ),
    ),
    of_labels=True,
)
