"""Report section on input and funnel."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from darklode.pipeline.report import statistics
from darklode.pipeline.report.drawing import Axis, AxisScale, Bar, Chart, Row
from darklode.pipeline.report.figure import Figure, FigureSection
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.funnel import funnel_of
from darklode.pipeline.report.source import ReportSource

MAX_REASONS = 4


def _funnel(table: pa.Table, _source: ReportSource) -> list[Chart]:
    steps = _steps(table)
    rows = [row for _, group in groupby(steps, _scale_group) for row in _bars(list(group))]
    return [Chart(rows, Axis(), height=16, legend=[("a", "passed on"), ("faint", "dropped")])]


def _steps(table: pa.Table) -> list[dict[str, Any]]:
    """One dictionary per step, with its drop reasons."""
    step_columns = ("step", "unit_in", "rows_in", "unit_out", "rows_out")
    steps = []
    for key, rows in groupby(table.to_pylist(), lambda row: tuple(row[name] for name in step_columns)):
        reasons = sorted(
            ((row["dropped"], row["reason"]) for row in rows if row["reason"]), key=lambda drop: (-drop[0], drop[1])
        )
        steps.append(dict(zip(step_columns, key, strict=True)) | {"reasons": reasons})
    return steps


def _scale_group(step: dict[str, Any]) -> str | None:
    """Unit of a step's bar; adjacent steps with the same unit share a scale, None means no bar.

    Steps in "rows" read input files of different kinds and get their own scales.
    """
    if step["unit_in"] != step["unit_out"]:
        return None
    return str(step["step"] if step["unit_in"] == "rows" else step["unit_in"])


def _bars(steps: list[dict[str, Any]]) -> Iterator[Row]:
    scale = AxisScale(0, max(step["rows_in"] for step in steps))
    for step in steps:
        rows_in, rows_out, unit = step["rows_in"], step["rows_out"], step["unit_out"]
        if _scale_group(step) is None:
            label = f"{number(rows_in)} {step['unit_in']} → {number(rows_out)} {unit}"
            yield Row(step["step"], (), "", " · ".join(filter(None, (label, _format_reasons(step)))))
            continue
        parts = [Bar(0, scale.position_of(rows_out), "a", f"{number(rows_out)} {unit} passed on")]
        if rows_in > rows_out:
            tip = f"{number(rows_in - rows_out)} {unit} dropped"
            parts.append(Bar(scale.position_of(rows_out), scale.span(rows_out, rows_in), "faint", tip))
        value = f"{number(rows_in)} → {number(rows_out)} {unit}" if rows_in > rows_out else f"{number(rows_out)} {unit}"
        yield Row(step["step"], parts, value, _format_reasons(step))


def _format_reasons(step: dict[str, Any]) -> str:
    reason_texts = [f"{reason} {number(dropped)}" for dropped, reason in step["reasons"][:MAX_REASONS]]
    n_more = len(step["reasons"]) - MAX_REASONS
    return " · ".join([*reason_texts, f"{n_more} more"] if n_more > 0 else reason_texts)


SECTION = FigureSection(
    "overview",
    "Overview",
    (
        Figure(
            "funnel",
            "Funnel",
            "Each bar is a step's input: the dark part was passed on, the pale part dropped for the reasons below. "
            "Adjacent steps with the same unit share a scale.",
            lambda source: funnel_of(source.manifests, list(source.stages)).drop_columns(["position"]),
            _funnel,
            wide=True,
            max_rows=200,
        ),
        Figure(
            "sizes",
            "Size by tenant",
            "Number of rows per table.",
            lambda source: statistics.sizes(source.tables),
            needs=("documents", "raw_queries"),
            max_rows=20,
        ),
    ),
)
