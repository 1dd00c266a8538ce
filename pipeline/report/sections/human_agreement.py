"""Report section on agreement: judge against human labels, and within a panel of judges."""

from itertools import groupby
from typing import Any

import pyarrow as pa

from darklode.pipeline.judge import panel as agreement
from darklode.pipeline.report import statistics
from darklode.pipeline.report.drawing import AxisScale, Multiples, ScatterPoint, Square
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.formatting import number, share
from darklode.pipeline.report.source import ReportSource

MAX_TENANTS = 12
MIN_SPAN = 0.1
AGREEMENT_COLUMNS = """
    tenant labels kappa cross_validated_kappa ece threshold fitted_threshold fitted_kappa true_positives
    false_positives false_negatives true_negatives unreadable probabilities judge_id
""".split()
"""Columns of the table, most important first because it is wide."""


def _curves(table: pa.Table, _source: ReportSource) -> list[Multiples]:
    rows = table.to_pylist()
    bounds = [row[name] for row in rows for name in ("mean_probability", "share_low", "share_high")]
    scale = AxisScale.including(min(bounds), max(bounds), MIN_SPAN)
    ticks = scale.axis("", 4).ticks
    squares = [
        Square(
            [_point(row, scale) for row in tenant_rows],
            ticks,
            "judge's probability",
            "relevant according to people",
            tenant,
        )
        for tenant, tenant_rows in groupby(rows, lambda row: str(row["tenant"]))
    ]
    note = f"First {MAX_TENANTS} tenants." if len(squares) > MAX_TENANTS else ""
    return [Multiples(squares[:MAX_TENANTS], note=note)]


def _point(row: dict[str, Any], scale: AxisScale) -> ScatterPoint:
    mean_probability, relevant_share = row["mean_probability"], row["relevant_share"]
    tip = f"judge {mean_probability:.3f}, people {share(relevant_share)} of {number(row['labels'])}"
    x, y, low, high = (
        scale.position_of(value) for value in (mean_probability, relevant_share, row["share_low"], row["share_high"])
    )
    return ScatterPoint(x, y, low, high, tip)


SECTION = FigureSection(
    "people",
    "Judge against human labels",
    (
        Figure(
            "calibration",
            "Agreement with human labels",
            "fitted_kappa was fitted on these labels and is optimistic; cross_validated_kappa estimates the value "
            "for new queries.",
            lambda source: statistics.calibration(source.tables).select(AGREEMENT_COLUMNS),
            needs=("calibration",),
            wide=True,
            max_rows=20,
        ),
        Figure(
            "reliability",
            "Reliability of the judge's probabilities",
            "On the diagonal, the judge's probability equals the share that people call relevant; below it, the "
            "judge is overconfident. 95 % Wilson intervals.",
            lambda source: statistics.reliability(source.tables),
            _curves,
            ("reliability",),
            wide=True,
            max_rows=10 * MAX_TENANTS,
        ),
        Figure(
            "panel",
            "Judges of the panel",
            "Verdicts of each member; the section on verdicts has the vote.",
            lambda source: statistics.members(source.tables),
            needs=("panel_verdicts",),
            max_rows=20,
        ),
        Figure(
            "panel-alpha",
            "Agreement of the panel",
            "Krippendorff's alpha over pairs with at least two labels: 1 is full agreement, 0 is chance.",
            lambda source: agreement.panel_alpha(source.tables),
            needs=("panel_verdicts",),
        ),
        Figure(
            "panel-agreement",
            "Pairwise agreement within the panel",
            "Cohen's kappa over the pairs that both members labelled: 1 is full agreement, 0 is chance.",
            lambda source: agreement.pairwise_kappa(source.tables),
            needs=("panel_verdicts",),
            wide=True,
            max_rows=20,
        ),
    ),
    of_labels=True,
)
