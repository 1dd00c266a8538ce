"""A distilled query tower: what it keeps of its teacher, how near it is, how its training went, how fast it is."""

from __future__ import annotations

import pyarrow as pa

from darklode.pipeline.report.charts import curves
from darklode.pipeline.report.drawing import Curves
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.source import ReportSource

TESTED = "tower_test"

COURSE = """
    SELECT CAST(learning_rate AS VARCHAR) AS setting, trial, l.step, squared, cosine, l.distance,
           l.step = kept_step AS kept
    FROM distillation_log l
    JOIN (SELECT trial, learning_rate, step AS kept_step FROM distillation_trials) USING (trial)
    ORDER BY trial, l.step
"""
HEALTH = "FROM tower_health ORDER BY split"

WATCHED = {"squared": "‖q − s‖², of what is learned from", "distance": "‖q − s‖ on held-out queries"}


def _retained_quality(source: ReportSource) -> pa.Table:
    from darklode.pipeline.towers.folder import KEPT

    return source.tables.sql(KEPT)


def _training_curves(table: pa.Table, _source: ReportSource) -> list[Curves]:
    return [curves(table, ("step", "steps"), name, axis_title) for name, axis_title in WATCHED.items()]


def _speeds(source: ReportSource) -> pa.Table:
    """A row a tower: its numbers, and the times of the machine that tested it."""
    facts = source.manifests[TESTED].facts if TESTED in source.manifests else {}
    return pa.Table.from_pylist([{"tower": name, **facts[name]} for name in ("teacher", "student") if name in facts])


SECTION = FigureSection(
    "distilling",
    "The distilled query tower",
    (
        Figure(
            "tower-kept",
            "What the student keeps",
            "On the labelled test queries: kept is the student's value by the teacher's, low and high are a 95 % "
            "interval of the difference.",
            _retained_quality,
            needs=("tower_health", "evaluation", "evaluation_pairs"),
        ),
        Figure(
            "tower-health",
            "How near it is to its teacher",
            "Distance is the mean ‖q − s‖ of unit vectors: what ranking can lose is at most as much, up to a constant; "
            "unseen queries are those that nothing looked at before the end; overlap is of the first ten.",
            sql_source(HEALTH),
            needs=("tower_health",),
        ),
        Figure(
            "tower-course",
            "How training went",
            "Each trial's looks at the held-out queries; the nearest is kept.",
            sql_source(COURSE),
            _training_curves,
            ("distillation_log", "distillation_trials"),
            wide=True,
            max_rows=2000,
        ),
        Figure(
            "tower-speeds",
            "Size and speed",
            "Numbers of each tower, those of tokens included, and its times on one core of the machine that tested it.",
            _speeds,
            needs=("tower_health",),
        ),
    ),
)
