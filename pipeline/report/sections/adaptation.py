"""An adapted query encoder: what was decided, where it gains, what could be gained, and how its training went."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from darklode.pipeline.base.types import Row
from darklode.pipeline.report.charts import Whisker, curves, whiskers
from darklode.pipeline.report.drawing import Chart, Curves, Facts
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.source import ReportSource

PAIRS = """
    SELECT part, measure, difference, low, high, p_holm, detectable, wins, losses, queries FROM evaluation_pairs
    WHERE tenant IS NULL ORDER BY part <> 'own positive', part, measure NOT LIKE 'nDCG%', measure
"""
LEARNED = """
    SELECT split, count(*) AS queries, count(DISTINCT "group") AS clusters,
           count(*) FILTER (shares_positive) AS share_a_positive
    FROM adaptation_queries GROUP BY split ORDER BY split DESC
"""
COURSE = """
    SELECT setting, trial, l.step, loss, l.validation, replaced, judged, short, spread, l.step = kept_step AS kept
    FROM training_log l JOIN (SELECT DISTINCT trial, setting, step AS kept_step FROM adaptation_trials) USING (trial)
    ORDER BY trial, l.step
"""
TRIALS = """
    SELECT setting, trial, share, step, validation, stopped,
           row_number() OVER (ORDER BY validation DESC, share, trial) = 1 AS kept
    FROM adaptation_trials ORDER BY trial, share
"""

WATCHED = {
    "loss": "loss",
    "validation": "nDCG@10 on validation",
    "replaced": "share of negatives that a mining replaced",
    "spread": "spread of query vectors (0: all are one)",
}


def _facts(table: pa.Table, _source: ReportSource) -> list[Facts]:
    return [Facts(list(_setting_names(row))) for row in table.to_pylist()]


def _setting_names(row: Row) -> Iterator[tuple[str, str]]:
    yield "handed over", row["shipped"]
    if row["difference"] is not None:
        between = f" ({row['low']:+.3f} to {row['high']:+.3f})" if row["low"] is not None else ""
        yield "nDCG@10 over the base", f"{row['difference']:+.3f}{between}"
    yield "test queries that decide", number(row["queries"])
    if row["detectable"] is not None:
        yield "least difference they show", f"{row['detectable']:.3f}"
    folds = f", cross-validated in {row['folds']} folds" if row["folds"] else ""
    yield "chosen by queries", f"{number(row['validation_queries'])}{folds}"
    yield "setting that they chose", row["setting"]
    yield "share of the way from the base", f"{row['share']:g}"


def _lifts(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = [row for row in table.to_pylist() if not row["measure"].startswith("Judged")]
    measures = dict.fromkeys(row["measure"] for row in rows)
    return [_lift([row for row in rows if row["measure"] == measure], measure) for measure in measures]


def _lift(rows: Sequence[Row], measure: str) -> Chart:
    return whiskers([_difference(row) for row in rows], measure, "a", zero="the base")


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
    measured_columns = [name for name in WATCHED if table[name].null_count < len(table)]
    return [curves(table, ("step", "steps"), name, WATCHED[name]) for name in measured_columns]


def _shares(table: pa.Table, _source: ReportSource) -> list[Curves]:
    return [curves(table, ("share", "share of the way from the base"), "validation", "nDCG@10 on validation")]


def _training_data(source: ReportSource) -> pa.Table:
    """Nothing of a distilled tower, which these queries are none of, nor of laws, whose cells each learn from some."""
    has_other_sources = source.laws or "tower_queries" in source.written_tables
    return source.tables.sql(LEARNED).slice(0, 0 if has_other_sources else None)


SECTION = FigureSection(
    "adapting",
    "The adapted query encoder",
    (
        Figure(
            "adapter-verdict",
            "What is handed over",
            "The adapted encoder only where its lift is shown on test queries whose clusters and positives training "
            "never saw: at least 10 clusters, interval, test and lower bound (docs/guides/adapt.md).",
            sql_source("FROM adapter_verdict ORDER BY tenant"),
            _facts,
            ("adapter_verdict",),
            wide=True,
        ),
        Figure(
            "adapter-lift",
            "Adapted less base, on the test queries",
            "With 95 % bootstrap intervals over groups of queries; own positive: training saw neither the query's "
            "cluster nor a positive of it, and these alone decide; shared positive: it may know the answer by heart.",
            sql_source(PAIRS),
            _lifts,
            ("adapter_verdict", "evaluation_pairs"),
            wide=True,
        ),
        Figure(
            "adapter-headroom",
            "What could be gained",
            "On the validation queries, before training: the base's first 100 in the best order need no new text to "
            "be found; perfect is the most that any list reaches.",
            lambda source: source.tables.read("headroom"),
            _headroom,
            ("headroom",),
            wide=True,
        ),
        Figure(
            "adapter-course",
            "How training went",
            "Each trial's looks at the validation queries; a falling loss with falling validation is a collapse, and "
            "ends the trial.",
            sql_source(COURSE),
            _training_curves,
            ("training_log", "adaptation_trials"),
            wide=True,
            max_rows=2000,
        ),
        Figure(
            "adapter-trials",
            "What was tried",
            "Each trial's best weights, and points on the way back to the base, which is 0; the highest is chosen.",
            sql_source(TRIALS),
            _shares,
            ("adaptation_trials",),
            max_rows=500,
        ),
        Figure(
            "adapter-learned",
            "What it learned from",
            "Queries by side, the clusters they make, and how many share a positive with training.",
            _training_data,
            needs=("adaptation_queries",),
        ),
    ),
    of_labels=True,
)
