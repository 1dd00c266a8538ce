"""The judge against people's labels, and the judges of a panel against one another."""

from itertools import groupby
from typing import Any

import pyarrow as pa

from darklode.pipeline.judge import panel as agreement
from darklode.pipeline.report import statistics
from darklode.pipeline.report.drawing import AxisScale, Multiples, ScatterPoint, Square
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.formatting import number, share
from darklode.pipeline.report.source import ReportSource

TENANTS = 12
LEAST_SPAN = 0.1
AGREEMENT = """
    tenant labels kappa cross_validated_kappa ece threshold fitted_threshold fitted_kappa true_positives
    false_positives false_negatives true_negatives unreadable probabilities judge_id
""".split()
"""What is asked first comes first: the table is wide."""


def _curves(table: pa.Table, _source: ReportSource) -> list[Multiples]:
    rows = table.to_pylist()
    ends = [row[name] for row in rows for name in ("mean_probability", "share_low", "share_high")]
    scale = AxisScale.including(min(ends), max(ends), LEAST_SPAN)
    ticks = scale.axis("", 4).ticks
    squares = [
        Square([_point(row, scale) for row in same], ticks, "what the judge said", "what people said", tenant)
        for tenant, same in groupby(rows, lambda row: str(row["tenant"]))
    ]
    note = f"The first {TENANTS} tenants are drawn." if len(squares) > TENANTS else ""
    return [Multiples(squares[:TENANTS], note=note)]


def _point(row: dict[str, Any], scale: AxisScale) -> ScatterPoint:
    mean_probability, people = row["mean_probability"], row["relevant_share"]
    tip = f"judge {mean_probability:.3f}, people {share(people)} of {number(row['labels'])}"
    x, y, low, high = (
        scale.position_of(value) for value in (mean_probability, people, row["share_low"], row["share_high"])
    )
    return ScatterPoint(x, y, low, high, tip)


SECTION = FigureSection(
    "people",
    "The judge against people",
    (
        Figure(
            "calibration",
            "Agreement with human labels",
            "The judge's labels against those that were given; fitted_kappa was fitted on these very labels and "
            "flatters, cross_validated_kappa is what to expect of new queries.",
            lambda source: statistics.calibration(source.tables).select(AGREEMENT),
            needs=("calibration",),
            wide=True,
            max_rows=20,
        ),
        Figure(
            "reliability",
            "Reliability of the judge's probabilities",
            "On the diagonal the judge's probability is the share that people found relevant; below it, the judge is "
            "too sure (95 % Wilson intervals).",
            lambda source: statistics.reliability(source.tables),
            _curves,
            ("reliability",),
            wide=True,
            max_rows=10 * TENANTS,
        ),
        Figure(
            "panel",
            "Judges of the panel",
            "What each member said; the vote is above.",
            lambda source: statistics.members(source.tables),
            needs=("panel_verdicts",),
            max_rows=20,
        ),
        Figure(
            "panel-alpha",
            "Agreement of the whole panel",
            "Krippendorff's alpha over the pairs with two labels or more: 1 is agreement, 0 is chance.",
            lambda source: agreement.panel_alpha(source.tables),
            needs=("panel_verdicts",),
        ),
        Figure(
            "panel-agreement",
            "Agreement of the panel's judges",
            "Cohen's kappa of each two members over the pairs that both labelled: 1 is agreement, 0 is chance.",
            lambda source: agreement.pairwise_kappa(source.tables),
            needs=("panel_verdicts",),
            wide=True,
            max_rows=20,
        ),
    ),
    of_labels=True,
)
