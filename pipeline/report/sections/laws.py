"""Report section of scaling laws: verdicts, fitted curves, plans and correlations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import log2

import pyarrow as pa

from darklode.pipeline.base.types import Row
from darklode.pipeline.laws.page import (
    CORRELATION_NOTE,
    CORRELATIONS_SQL,
    COSTS_SQL,
    DEPTH_COSTS_SQL,
    DEPTH_NOTE,
    NEXT_QUERIES_SQL,
    PLAN_NOTE,
    TRAINED_ENCODERS_SQL,
    TRAINERS_NOTE,
    VERDICTS_SQL,
)
from darklode.pipeline.laws.points import LawKey
from darklode.pipeline.report.charts import MIN_SPAN, TONES
from darklode.pipeline.report.drawing import Axis, AxisScale, CurveLine, CurvePoint, Curves
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource

HELD_OUT_PART = "held out"

PLAN_SQL = """
    SELECT option, measure, source, gain, gain_low, gain_high, money, money_low, money_high, advice FROM law_plan
    ORDER BY rank
"""

TICK_WIDTH = 14.0
"""Minimum distance of labelled ticks, in percent of the axis."""

# Up to the largest size: the fit without it. Beyond: the law fitted to all sizes, if it holds.
CURVES_SQL = """
    SELECT measure, source, encoder, parameters, size, loss, predicted, low, high, part FROM law_predictions
    WHERE fitted_to = 'without the largest' OR part = 'not measured'
    ORDER BY measure, source, encoder, parameters NULLS FIRST, size
"""


def _curves(table: pa.Table, _source: ReportSource) -> list[Curves]:
    rows = [row for row in table.to_pylist() if row["size"] > 0]
    return [
        _law(f"{key.measure}, {key.label}", list(law_rows))
        for key, law_rows in groupby(rows, lambda row: LawKey(row["measure"], row["source"], row["encoder"]))
    ]


def _law(title: str, rows: list[Row]) -> Curves:
    """Curves of one measure and source, one tone per model size."""
    values = [row[name] for row in rows for name in ("loss", "predicted", "low", "high") if row[name] is not None]
    y_scale = AxisScale.including(min(values), max(values), min(MIN_SPAN, max(values) / 10))
    sizes = sorted({row["size"] for row in rows})
    x_scale = AxisScale(log2(sizes[0]), log2(sizes[-1]))
    drawn, legend = [], []
    for index, (model, model_rows) in enumerate(groupby(rows, lambda row: row["parameters"])):
        tone = TONES[min(index, len(TONES) - 1)]
        drawn += list(_model(list(model_rows), x_scale, y_scale, tone))
        legend.append((tone, "unnamed model" if model is None else f"{number(int(model))} parameters"))
    ticks = [(x_scale.position_of(log2(size)), f"{size:,}") for size in _spaced_ticks(sizes, x_scale)]
    axis = Axis("labelled queries (★ held out; band: 95 % prediction interval)", ticks)
    return Curves(drawn, axis, y_scale.axis("", 4), title, legend if len(legend) > 1 else [])


def _model(rows: list[Row], x_scale: AxisScale, y_scale: AxisScale, tone: str) -> Iterator[CurveLine]:
    def points(name: str, size_rows: list[Row]) -> list[CurvePoint]:
        rows_with_value = [row for row in size_rows if row[name] is not None]
        return [
            CurvePoint(x_scale.position_of(log2(row["size"])), y_scale.position_of(row[name]), _tip(row))
            for row in rows_with_value
        ]

    yield CurveLine([*points("low", rows), *reversed(points("high", rows))], tone, "band")
    yield CurveLine(points("predicted", rows), tone, "line")
    yield CurveLine(points("loss", [row for row in rows if row["part"] != HELD_OUT_PART]), tone, "dots")
    yield CurveLine(points("loss", [row for row in rows if row["part"] == HELD_OUT_PART]), tone, "stars")


def _spaced_ticks(sizes: list[int], x_scale: AxisScale) -> Iterator[int]:
    """Sizes whose tick labels do not overlap."""
    last = float("-inf")
    for size in sizes:
        if x_scale.position_of(log2(size)) - last >= TICK_WIDTH:
            last = x_scale.position_of(log2(size))
            yield size


def _tip(row: Row) -> str:
    loss_text = "" if row["loss"] is None else f"{row['loss']:.4f}, "
    ends = "" if row["low"] is None else f" ({row['low']:.4f} to {row['high']:.4f})"
    return f"{row['size']:,} labelled queries: {loss_text}predicted {row['predicted']:.4f}{ends}, {row['part']}"


SECTION = FigureSection(
    "laws",
    "Scaling laws of labelled data",
    (
        Figure(
            "law-verdicts",
            "Do scaling laws hold?",
            "The largest size is held out. held_out_error is the law's prediction error for it, naive_error the "
            "error of assuming no change from the next smaller size. A high R² alone is no evidence of a law.",
            sql_source(VERDICTS_SQL),
            needs=("law_verdicts",),
            wide=True,
        ),
        Figure(
            "law-curves",
            "Loss by number of labelled queries",
            "Mean loss over seeds; measures where higher is better are shown as 1 − value. Curve and band come from "
            "the fit without the largest size; beyond it, from the law if it holds.",
            sql_source(CURVES_SQL),
            _curves,
            ("law_predictions",),
            wide=True,
            max_rows=400,
        ),
        Figure(
            "law-plan",
            "Options",
            " ".join(PLAN_NOTE.split()),
            sql_source(PLAN_SQL),
            needs=("law_plan",),
            wide=True,
            null="",
        ),
        Figure(
            "law-costs",
            "Cost of labels",
            "Measured in the training runs and for the grid's encoders, with 95 % bootstrap intervals.",
            sql_source(COSTS_SQL),
            needs=("law_costs",),
            wide=True,
        ),
        Figure(
            "law-depths",
            "Positives by pool depth",
            " ".join(DEPTH_NOTE.split()),
            sql_source(DEPTH_COSTS_SQL),
            needs=("depth_costs",),
            wide=True,
        ),
        Figure(
            "law-next",
            "Queries to label next",
            "The most frequent query of each unlabelled cluster, then queries by disagreement within their cluster. No "
            "difference in training value to randomly drawn queries was measured.",
            sql_source(f"{NEXT_QUERIES_SQL} ORDER BY rank"),
            needs=("next_queries",),
            wide=True,
        ),
        Figure(
            "law-trained",
            "Trained encoders",
            " ".join(TRAINERS_NOTE.split()),
            lambda source: source.tables.sql(TRAINED_ENCODERS_SQL),
            needs=("law_points",),
            wide=True,
            null="",
        ),
        Figure(
            "law-correlations",
            "Contrastive entropy and ranking",
            " ".join(CORRELATION_NOTE.split()),
            sql_source(CORRELATIONS_SQL),
            needs=("law_correlations",),
        ),
    ),
)
