"""Report section of a distilled query tower."""

from __future__ import annotations

import pyarrow as pa

from darklode.pipeline.report.charts import curves
from darklode.pipeline.report.drawing import Curves
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.source import ReportSource

TEST_STAGE = "tower_test"

TRAINING_LOG_SQL = """
    SELECT CAST(learning_rate AS VARCHAR) AS setting, trial, l.step, squared, cosine, l.distance,
           l.step = kept_step AS kept
    FROM distillation_log l
    JOIN (SELECT trial, learning_rate, step AS kept_step FROM distillation_trials) USING (trial)
    ORDER BY trial, l.step
"""
TOWER_HEALTH_SQL = "FROM tower_health ORDER BY split"

CURVE_TITLES = {"squared": "‖q − s‖² on training queries", "distance": "‖q − s‖ on held-out queries"}


def _retained_quality(source: ReportSource) -> pa.Table:
    from darklode.pipeline.towers.folder import RETAINED_QUALITY_SQL

    return source.tables.sql(RETAINED_QUALITY_SQL)


def _training_curves(table: pa.Table, _source: ReportSource) -> list[Curves]:
    return [curves(table, ("step", "steps"), name, axis_title) for name, axis_title in CURVE_TITLES.items()]


def _speeds(source: ReportSource) -> pa.Table:
    """A row per tower: parameters, and times measured on the test machine."""
    facts = source.manifests[TEST_STAGE].facts if TEST_STAGE in source.manifests else {}
    return pa.Table.from_pylist([{"tower": name, **facts[name]} for name in ("teacher", "student") if name in facts])


SECTION = FigureSection(
    "distilling",
    "Distilled query tower",
    (
        Figure(
            "tower-kept",
            "Student against teacher",
            "On the labelled test queries, and on those of a held-out run. kept is the student's score divided by the "
            "teacher's; low and high are the 95 % interval of the difference.",
            _retained_quality,
            needs=(
                *("tower_health", "tower_queries", "adaptation_queries"),
                *("evaluation", "evaluation_pairs", "evaluation_queries"),
            ),
        ),
        Figure(
            "tower-health",
            "Agreement with the teacher",
            "overlap is the share of the teacher's first ten in the student's first ten, top_100 their share in its "
            "first hundred. distance is the mean ‖q − s‖ of unit vectors, which bounds the loss in ranking up to a "
            "constant. unseen queries belong to the held-out source, or to held-out clusters of all sources.",
            sql_source(TOWER_HEALTH_SQL),
            needs=("tower_health",),
        ),
        Figure(
            "tower-course",
            "Training curves",
            "Each trial's loss and its distance on held-out queries; the trial with the smallest distance is selected.",
            sql_source(TRAINING_LOG_SQL),
            _training_curves,
            ("distillation_log", "distillation_trials"),
            wide=True,
            max_rows=2000,
        ),
        Figure(
            "tower-speeds",
            "Size and speed",
            "Parameters of each tower, including token embeddings, and times on one core of the test machine.",
            _speeds,
            needs=("tower_health",),
        ),
    ),
)
