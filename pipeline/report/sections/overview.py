"""What went in, and where the rows went."""

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

REASONS = 4


def _funnel(table: pa.Table, _source: ReportSource) -> list[Chart]:
    steps = _steps(table)
    rows = [row for _, same in groupby(steps, _scale_group) for row in _bars(list(same))]
    return [Chart(rows, Axis(), height=16, legend=[("a", "went on"), ("faint", "dropped")])]


def _steps(table: pa.Table) -> list[dict[str, Any]]:
    """One dictionary a step, its reasons gathered."""
    names = ("step", "unit_in", "rows_in", "unit_out", "rows_out")
    steps = []
    for key, rows in groupby(table.to_pylist(), lambda row: tuple(row[name] for name in names)):
        reasons = sorted(
            ((row["dropped"], row["reason"]) for row in rows if row["reason"]), key=lambda drop: (-drop[0], drop[1])
        )
        steps.append(dict(zip(names, key, strict=True)) | {"reasons": reasons})
    return steps


def _scale_group(step: dict[str, Any]) -> str | None:
    """What a step's bar is measured in; neighbouring steps with the same value share a scale, None draws no bar.

    Input files are all counted in "rows": those of documents, queries and logs have nothing in common.
    """
    if step["unit_in"] != step["unit_out"]:
        return None
    return str(step["step"] if step["unit_in"] == "rows" else step["unit_in"])


def _bars(steps: list[dict[str, Any]]) -> Iterator[Row]:
    scale = AxisScale(0, max(step["rows_in"] for step in steps))
    for step in steps:
        came, went, unit = step["rows_in"], step["rows_out"], step["unit_out"]
        if _scale_group(step) is None:
            label = f"{number(came)} {step['unit_in']} → {number(went)} {unit}"
            yield Row(step["step"], (), "", " · ".join(filter(None, (label, _reasons(step)))))
            continue
        parts = [Bar(0, scale.position_of(went), "a", f"{number(went)} {unit} went on")]
        if came > went:
            tip = f"{number(came - went)} {unit} dropped"
            parts.append(Bar(scale.position_of(went), scale.span(went, came), "faint", tip))
        value = f"{number(came)} → {number(went)} {unit}" if came > went else f"{number(went)} {unit}"
        yield Row(step["step"], parts, value, _reasons(step))


def _reasons(step: dict[str, Any]) -> str:
    reason_texts = [f"{reason} {number(dropped)}" for dropped, reason in step["reasons"][:REASONS]]
    n_more = len(step["reasons"]) - REASONS
    return " · ".join([*reason_texts, f"{n_more} more"] if n_more > 0 else reason_texts)


SECTION = FigureSection(
    "overview",
    "From what came in to what came out",
    (
        Figure(
            "funnel",
            "Funnel",
            "Each step's bar is what came in: the dark part went on, the pale part was dropped for the reasons below "
            "it; steps that count the same thing share a scale.",
            lambda source: funnel_of(source.manifests, list(source.stages)).drop_columns(["position"]),
            _funnel,
            wide=True,
            max_rows=200,
        ),
        Figure(
            "sizes",
            "What went in, by tenant",
            "Rows of each table; tenants never mix.",
            lambda source: statistics.sizes(source.tables),
            needs=("documents", "raw_queries"),
            max_rows=20,
        ),
    ),
)
