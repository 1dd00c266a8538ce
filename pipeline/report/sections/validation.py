"""Report section of the validation by reviewers and the release decision."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from darklode.pipeline.report import statistics
from darklode.pipeline.report.charts import Whisker, whiskers
from darklode.pipeline.report.drawing import Chart, Quote, Quotes
from darklode.pipeline.report.figure import Figure, FigureSection, sql_source
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.passages import Key, Passages, plain
from darklode.pipeline.report.source import ReportSource

N_DISAGREEMENTS = 10
MAX_ROWS = 24
MEASURES = {
    "precision": ("Precision of the judge", "a"),
    "recall": ("Recall of the judge on the pool's positives", "b"),
    "kappa": ("Cohen's kappa", "c"),
}

VALIDATION_SQL = """
    SELECT tenant, retriever, labelled, queries, precision, precision_low, precision_high, recall, recall_low,
           recall_high, missed, missed_low, missed_high, kappa, kappa_low, kappa_high, weighted_kappa,
           weighted_kappa_low, weighted_kappa_high, null_rate, tied, skipped, outside
    FROM validation ORDER BY retriever NULLS FIRST, tenant NULLS FIRST
"""
RELEASE_SQL = "SELECT * FROM release ORDER BY figure"


def _figures(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = table.to_pylist()
    drawn = {measure: list(_estimates(rows, measure)) for measure in MEASURES}
    return [whiskers(estimates, *MEASURES[measure]) for measure, estimates in drawn.items() if estimates]


def _estimates(rows: list[dict[str, Any]], measure: str) -> Iterator[Whisker]:
    for row in rows:
        middle, low, high = (row[f"{measure}{suffix}"] for suffix in ("", "_low", "_high"))
        if None in (middle, low, high):
            continue
        sample_size = f"{number(row['labelled'])} labelled pairs"
        if row["retriever"] is not None:
            yield Whisker(row["retriever"], middle, low, high, sample_size, "by retriever")
        elif row["tenant"] is not None:
            yield Whisker(row["tenant"], middle, low, high, sample_size, "by tenant")
        else:
            yield Whisker("all pairs", middle, low, high, sample_size)


def _quotes(table: pa.Table, source: ReportSource) -> list[Quotes]:
    rows = table.to_pylist()
    passages = Passages(source, [_key(row) for row in rows])
    return [Quotes([_quote(row, passages) for row in rows])]


def _key(row: dict[str, Any]) -> Key:
    return row["tenant"], row["query_id"], row["chunk_id"]


def _quote(row: dict[str, Any], passages: Passages) -> Quote:
    probability_text = "" if row["probability"] is None else f", probability {row['probability']:.3f}"
    role = "positive" if row["people"] else "negative"
    people_grade = f" (grade {row['people']})" if row["people"] > 1 else ""
    judge_grade = "" if row["grade"] is None else f", grade {row['grade']}"
    note = (
        f"according to people{people_grade}; judge: {row['verdict']}{judge_grade}{probability_text}; represents "
        f"{number(round(row['weight']))} pairs"
    )
    reasons = [plain(row[name]) for name in ("reasons", "judge_says") if row[name]]
    chunk = passages.text(_key(row), row["query"], row["chunk"], role, note)
    return Quote(row["query"], (row["tenant"], row["kind"]), [chunk], reasons)


SECTION = FigureSection(
    "validation",
    "Judge against reviewers",
    (
        Figure(
            "release",
            "Release requirements",
            "Required and measured values; an unknown value does not meet a requirement.",
            sql_source(RELEASE_SQL),
            needs=("release",),
        ),
        Figure(
            "validation-confusion",
            "Labelled pairs",
            "Judge (rows) against people (columns). The sample contains a larger share of the judge's positives than "
            "the run.",
            lambda source: statistics.confusion(source.tables),
            needs=("validation",),
        ),
        Figure(
            "validation",
            "Estimated precision, recall and agreement of the whole run",
            "Each labelled pair is weighted by the pairs it represents; whiskers are 95 % intervals. Recall is "
            "relative to the pool: texts that no retriever found were never judged.",
            sql_source(VALIDATION_SQL),
            _figures,
            ("validation",),
            wide=True,
            max_rows=MAX_ROWS,
        ),
        Figure(
            "validation-thresholds",
            "Current and best-fitting threshold",
            "The fitted threshold has the highest kappa. fitted_kappa is optimistic; cross_validated_kappa estimates "
            "the value for new queries.",
            lambda source: statistics.fitted_thresholds(source.tables),
            needs=("validation",),
            wide=True,
        ),
        Figure(
            "reviewer-agreement",
            "Agreement between reviewers",
            "Pairwise Cohen's kappa (weighted_kappa: of grades, quadratic weights), and Krippendorff's alpha of all "
            "reviewers; it limits the agreement a judge can reach.",
            lambda source: statistics.reviewers(source.tables),
            needs=("reviewer_agreement",),
            wide=True,
            max_rows=20,
        ),
        Figure(
            "disagreements",
            "Disagreements between judge and people",
            "Pairs that represent the most pairs of the run first.",
            lambda source: statistics.disagreements(source.tables, N_DISAGREEMENTS),
            _quotes,
            ("disagreements", "queries", "chunks"),
            wide=True,
        ),
    ),
)
