"""Report section of an adapted query encoder."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from darklode.pipeline.base.types import Row
from darklode.pipeline.report.charts import Whisker, curves, whiskers
from darklode.pipeline.report.drawing import Chart, Curves, Facts
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource
from darklode.pipeline.train.release.verdict import format_interval

DIFFERENCES_SQL = """
    SELECT part, measure, difference, low, high, p_holm, detectable, wins, losses, queries FROM evaluation_pairs
    WHERE tenant IS NULL AND system = 'adapted' AND other = 'base'
    ORDER BY part <> 'own positive', part, measure NOT LIKE 'nDCG%', measure
"""
# Of the deciding part, as for the release decision; nothing without a deciding query.
SYSTEMS_SQL = """
    SELECT system AS part, measure, difference, low, high, p_holm, wins, losses, queries FROM evaluation_pairs
    WHERE tenant IS NULL AND other = 'base' AND measure = 'nDCG@10'
      AND part = (SELECT max(part) FROM evaluation_pairs WHERE part IN ('own positive', 'counted'))
      AND EXISTS (FROM adapter_verdict WHERE queries > 0)
    ORDER BY difference DESC, system
"""
TRAINING_DATA_SQL = """
    SELECT split, count(*) AS queries, count(DISTINCT "group") AS clusters,
           count(*) FILTER (shares_positive) AS share_a_positive
    FROM adaptation_queries GROUP BY split ORDER BY split DESC
"""
TRAINING_LOG_SQL = """
    SELECT setting, trial, l.step, loss, l.validation, replaced, judged, short, spread, l.step = kept_step AS kept
    FROM training_log l JOIN (SELECT DISTINCT trial, setting, step AS kept_step FROM adaptation_trials) USING (trial)
    ORDER BY trial, l.step
"""
TRIALS_SQL = """
    SELECT setting, trial, share, step, validation, stopped,
           row_number() OVER (ORDER BY validation DESC, share, trial) = 1 AS kept
    FROM adaptation_trials ORDER BY trial, share
"""

COMPARISON_LABELS = {
    "label_free": "gain over {system}, the best without labels on validation",
    "hybrid": "gain in hybrid search, over {system}",
    "control": "gain over shuffled labels: what the labels brought",
}

CURVE_TITLES = {
    "loss": "loss",
    "validation": "nDCG@10 on validation",
    "replaced": "share of negatives replaced by hard-negative mining",
    "spread": "spread of query vectors (0: collapsed)",
}


def _facts(table: pa.Table, source: ReportSource) -> list[Facts]:
    fused = ", both fused with BM25" if source.settings.adapt.serve_as == "hybrid" else ""
    return [Facts(list(_decision_facts(row, f"nDCG@10 gain over the base{fused}"))) for row in table.to_pylist()]


def _decision_facts(row: Row, gain: str) -> Iterator[tuple[str, str]]:
    yield "released", row["shipped"]
    if row["difference"] is not None:
        interval = f" ({row['low']:+.3f} to {row['high']:+.3f})" if row["low"] is not None else ""
        yield gain, f"{row['difference']:+.3f}{interval}"
    yield "deciding test queries", number(row["queries"])
    for name, label in COMPARISON_LABELS.items():
        if row[name] is not None:
            ends = {"difference": row[f"over_{name}"], "low": row[f"over_{name}_low"], "high": row[f"over_{name}_high"]}
            yield label.format(system=row[name]), format_interval(ends)
    if row["detectable"] is not None:
        yield "minimum detectable difference", f"{row['detectable']:.3f}"
    folds = f", cross-validated in {row['folds']} folds" if row["folds"] else ""
    yield "validation queries", f"{number(row['validation_queries'])}{folds}"
    yield "selected setting", row["setting"]
    yield "interpolation from the base", f"{row['share']:g}"


def _lifts(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = [row for row in table.to_pylist() if not row["measure"].startswith("Judged")]
    measures = dict.fromkeys(row["measure"] for row in rows)
    return [_lift([row for row in rows if row["measure"] == measure], measure) for measure in measures]


def _lift(rows: Sequence[Row], measure: str) -> Chart:
    return whiskers([_difference(row) for row in rows], measure, "a", zero="base")


def _difference(row: Row) -> Whisker:
    low, high = (row["difference"] if row[end] is None else row[end] for end in ("low", "high"))
    return Whisker(row["part"], row["difference"], low, high, f"{number(row['queries'])} queries")


def _headroom(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = table.to_pylist()
    measures = dict.fromkeys(row["measure"] for row in rows)
    return [whiskers(list(_score_whiskers(rows, measure)), measure, "a") for measure in measures]


def _score_whiskers(rows: Sequence[Row], measure: str) -> Iterator[Whisker]:
    for row in rows:
        if row["measure"] == measure:
            value = row["value"]
            yield Whisker(row["system"], value, value, value, f"{number(row['queries'])} queries")


def _training_curves(table: pa.Table, _source: ReportSource) -> list[Curves]:
    measured_columns = [name for name in CURVE_TITLES if table[name].null_count < len(table)]
    return [curves(table, ("step", "steps"), name, CURVE_TITLES[name]) for name in measured_columns]


def _shares(table: pa.Table, _source: ReportSource) -> list[Curves]:
    return [
        curves(
            table,
            ("share", "interpolation from the base (0) to the adapter (1)"),
            "validation",
            "nDCG@10 on validation",
        )
    ]


def _training_data(source: ReportSource) -> pa.Table:
    """Training queries by split; empty for distilled towers and scaling laws, which use other queries."""
    has_other_sources = source.laws or "tower_queries" in source.written_tables
    return source.tables.sql(TRAINING_DATA_SQL).slice(0, 0 if has_other_sources else None)


SECTION = FigureSection(
    "adapting",
    "Adapted query encoder",
    (
        Figure(
            "adapter-verdict",
            "Release decision",
            "The adapted encoder is released only if it has a significant gain on test queries whose clusters and "
            "positives do not occur in training; at least 10 clusters are required (docs/guides/adapt.md).",
            sql_source("FROM adapter_verdict ORDER BY tenant"),
            _facts,
            ("adapter_verdict",),
            wide=True,
        ),
        Figure(
            "adapter-lift",
            "Gain over the base encoder on the test queries",
            "95 % bootstrap intervals over query clusters. Own positive: neither the query's cluster nor its positives "
            "occur in training; only these queries decide. Shared positive: the model may have memorized the answer.",
            sql_source(DIFFERENCES_SQL),
            _lifts,
            ("adapter_verdict", "evaluation_pairs"),
            wide=True,
        ),
        Figure(
            "adapter-systems",
            "Gain over the base encoder, by system",
            "Systems that need no labels, the adapted encoder, its fusions with BM25, and the control with shuffled "
            "labels, on the deciding test queries.",
            sql_source(SYSTEMS_SQL),
            _lifts,
            ("adapter_verdict", "evaluation_pairs"),
            wide=True,
        ),
        Figure(
            "adapter-headroom",
            "Headroom",
            "Scores on the queries used for model selection, before training: systems that need no labels, the base's "
            "top 100 in the best order, and the maximum that any ranking can reach.",
            lambda source: source.tables.read("headroom"),
            _headroom,
            ("headroom",),
            wide=True,
        ),
        Figure(
            "adapter-course",
            "Training curves",
            "Loss and validation scores of each trial. A trial stops if the validation score falls while the loss "
            "falls.",
            sql_source(TRAINING_LOG_SQL),
            _training_curves,
            ("training_log", "adaptation_trials"),
            wide=True,
            max_rows=2000,
        ),
        Figure(
            "adapter-trials",
            "Trials",
            "Validation score of each trial's best weights, interpolated with the base encoder (0); the best point is "
            "selected.",
            sql_source(TRIALS_SQL),
            _shares,
            ("adaptation_trials",),
            max_rows=500,
        ),
        Figure(
            "adapter-learned",
            "Training data",
            "Queries and query clusters by split, and how many queries share a positive with training.",
            _training_data,
            needs=("adaptation_queries",),
        ),
    ),
    of_labels=True,
)
