"""Laws of labels: each verdict, the curve with its band and what was held out, and how entropy goes with ranking."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import log2

import pyarrow as pa

from darklode.pipeline.base.types import Row
from darklode.pipeline.laws.page import (
    BATCH,
    CORRELATED,
    CORRELATIONS,
    COSTS,
    DEEPER,
    DEPTHS,
    PLANNING,
    TRAINED,
    TRAINERS,
    VERDICTS,
)
from darklode.pipeline.laws.points import LawKey
from darklode.pipeline.report.charts import LEAST_SPAN, TONES
from darklode.pipeline.report.drawing import Axis, AxisScale, CurveLine, CurvePoint, Curves
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource

HELD_OUT = "held out"

SAID = """
    SELECT choice, measure, source, gain, gain_low, gain_high, money, money_low, money_high, said FROM law_plan
    ORDER BY place
"""

ROOM = 14.0
"""Percent of the axis that a tick's number takes."""

# The curve is that of the fit that never saw the largest size, and beyond it that of the law, where one stands.
CURVES = """
    SELECT measure, source, encoder, parameters, size, loss, predicted, low, high, part FROM law_predictions
    WHERE fitted_to = 'without the largest' OR part = 'not measured'
    ORDER BY measure, source, encoder, parameters NULLS FIRST, size
"""


def _curves(table: pa.Table, _source: ReportSource) -> list[Curves]:
    rows = [row for row in table.to_pylist() if row["size"] > 0]
    return [
        _law(f"{key.measure}, {key.label}", list(same))
        for key, same in groupby(rows, lambda row: LawKey(row["measure"], row["source"], row["encoder"]))
    ]


def _law(title: str, rows: list[Row]) -> Curves:
    """Of one measure and source; a tone a model."""
    values = [row[name] for row in rows for name in ("loss", "predicted", "low", "high") if row[name] is not None]
    upward = AxisScale.including(min(values), max(values), min(LEAST_SPAN, max(values) / 10))
    sizes = sorted({row["size"] for row in rows})
    across = AxisScale(log2(sizes[0]), log2(sizes[-1]))
    drawn, legend = [], []
    for index, (model, same) in enumerate(groupby(rows, lambda row: row["parameters"])):
        tone = TONES[min(index, len(TONES) - 1)]
        drawn += list(_model(list(same), across, upward, tone))
        legend.append((tone, "no model named" if model is None else f"{number(int(model))} parameters"))
    ticks = [(across.position_of(log2(size)), f"{size:,}") for size in _spaced_ticks(sizes, across)]
    axis = Axis("labelled queries; ★ held out, band: 95 % of a new point", ticks)
    return Curves(drawn, axis, upward.axis("", 4), title, legend if len(legend) > 1 else [])


def _model(rows: list[Row], across: AxisScale, upward: AxisScale, tone: str) -> Iterator[CurveLine]:
    def points(name: str, some: list[Row]) -> list[CurvePoint]:
        rows_with_value = [row for row in some if row[name] is not None]
        return [
            CurvePoint(across.position_of(log2(row["size"])), upward.position_of(row[name]), _tip(row))
            for row in rows_with_value
        ]

    yield CurveLine([*points("low", rows), *reversed(points("high", rows))], tone, "band")
    yield CurveLine(points("predicted", rows), tone, "line")
    yield CurveLine(points("loss", [row for row in rows if row["part"] != HELD_OUT]), tone, "dots")
    yield CurveLine(points("loss", [row for row in rows if row["part"] == HELD_OUT]), tone, "stars")


def _spaced_ticks(sizes: list[int], across: AxisScale) -> Iterator[int]:
    """Those that have room for their number."""
    last = float("-inf")
    for size in sizes:
        if across.position_of(log2(size)) - last >= ROOM:
            last = across.position_of(log2(size))
            yield size


def _tip(row: Row) -> str:
    loss_text = "" if row["loss"] is None else f"{row['loss']:.4f}, "
    ends = "" if row["low"] is None else f" ({row['low']:.4f} to {row['high']:.4f})"
    return f"{row['size']:,} labelled queries: {loss_text}predicted {row['predicted']:.4f}{ends}, {row['part']}"


SECTION = FigureSection(
    "laws",
    "Laws of labels",
    (
        Figure(
            "law-verdicts",
            "Is there a law?",
            "The largest size is held out and predicted: held_out_error is how far it is missed, naive_error how far "
            "as the size before misses it. R² proves nothing.",
            sql_source(VERDICTS),
            needs=("law_verdicts",),
            wide=True,
        ),
        Figure(
            "law-curves",
            "How loss falls with labels",
            "Losses, means over seeds; a measure of which more is better stands as 1 − its value. The curve and its "
            "band are of the fit that never saw the largest size, and beyond it of the law, where one stands.",
            sql_source(CURVES),
            _curves,
            ("law_predictions",),
            wide=True,
            max_rows=400,
        ),
        Figure(
            "law-plan",
            "What may be done next",
            " ".join(PLANNING.split()),
            sql_source(SAID),
            needs=("law_plan",),
            wide=True,
            null="",
        ),
        Figure(
            "law-costs",
            "What labels took",
            "Of the runs that the grid learned from, and of its encoders; intervals are 95 % bootstrap ones.",
            sql_source(COSTS),
            needs=("law_costs",),
            wide=True,
        ),
        Figure(
            "law-depths",
            "Positives by depth of the pool",
            " ".join(DEEPER.split()),
            sql_source(DEPTHS),
            needs=("depth_costs",),
            wide=True,
        ),
        Figure(
            "law-next",
            "To label next",
            "The most asked query of each cluster without a label, then by disagreement of its cluster, in turns; what "
            "it teaches could not be told from what drawn queries teach.",
            sql_source(f"{BATCH} ORDER BY place"),
            needs=("next_queries",),
            wide=True,
        ),
        Figure(
            "law-trained",
            "What was trained",
            " ".join(TRAINERS.split()),
            lambda source: source.tables.sql(TRAINED),
            needs=("law_points",),
            wide=True,
            null="",
        ),
        Figure(
            "law-correlations",
            "Contrastive entropy and ranking",
            " ".join(CORRELATED.split()),
            sql_source(CORRELATIONS),
            needs=("law_correlations",),
        ),
    ),
)
