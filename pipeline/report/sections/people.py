"""The judge against people's labels, and the judges of a panel against one another."""

from itertools import groupby

import pyarrow as pa

from darklode.pipeline.judge import panel as agreement
from darklode.pipeline.report import statistics
from darklode.pipeline.report.drawing import Point, Square
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.numbers import number, share
from darklode.pipeline.report.source import Source

TENANTS = 6
AGREEMENT = """
    tenant labels kappa cross_validated_kappa ece threshold fitted_threshold fitted_kappa true_positives
    false_positives false_negatives true_negatives unreadable probabilities judge_id
""".split()
"""What is asked first comes first: the table is wide."""


def _curves(table: pa.Table, _source: Source) -> list[Square]:
    by_tenant = groupby(table.to_pylist(), lambda row: str(row["tenant"]))
    found = [
        Square(
            [
                Point(
                    round(100 * row["mean_probability"], 2),
                    round(100 * row["relevant_share"], 2),
                    round(100 * row["share_low"], 2),
                    round(100 * row["share_high"], 2),
                    f"judge {row['mean_probability']:.3f}, people {share(row['relevant_share'])} "
                    f"of {number(row['labels'])}",
                )
                for row in rows
            ],
            "what the judge said",
            "what people said",
            tenant,
        )
        for tenant, rows in by_tenant
    ]
    return found[:TENANTS]


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
            most=20,
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
        ),
        Figure(
            "panel",
            "Judges of the panel",
            "What each member said; the vote is above.",
            lambda source: statistics.members(source.tables),
            needs=("panel_verdicts",),
            most=20,
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
            most=20,
        ),
    ),
    of_labels=True,
)
