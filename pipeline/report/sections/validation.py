"""The judge against its reviewers, estimated for the whole run, and the release gate."""

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

READ = 10
SCOPES = 24
MEASURES = {
    "precision": ("Precision: of what the judge found, relevant to people", "a"),
    "recall": ("Recall: of the pool's positives, found by the judge", "b"),
    "kappa": ("Cohen's kappa", "c"),
}

FIGURES = """
    SELECT tenant, retriever, labelled, queries, precision, precision_low, precision_high, recall, recall_low,
           recall_high, missed, missed_low, missed_high, kappa, kappa_low, kappa_high, weighted_kappa,
           weighted_kappa_low, weighted_kappa_high, null_rate, tied, skipped, outside
    FROM validation ORDER BY retriever NULLS FIRST, tenant NULLS FIRST
"""
RELEASE = "SELECT * FROM release ORDER BY figure"


def _figures(table: pa.Table, _source: ReportSource) -> list[Chart]:
    rows = table.to_pylist()
    drawn = {measure: list(_estimates(rows, measure)) for measure in MEASURES}
    return [whiskers(estimates, *MEASURES[measure]) for measure, estimates in drawn.items() if estimates]


def _estimates(rows: list[dict[str, Any]], measure: str) -> Iterator[Whisker]:
    for row in rows:
        middle, low, high = (row[f"{measure}{end}"] for end in ("", "_low", "_high"))
        if None in (middle, low, high):
            continue
        basis = f"{number(row['labelled'])} labelled pairs"
        if row["retriever"] is not None:
            yield Whisker(row["retriever"], middle, low, high, basis, "by retriever")
        elif row["tenant"] is not None:
            yield Whisker(row["tenant"], middle, low, high, basis, "by tenant")
        else:
            yield Whisker("all pairs", middle, low, high, basis)


def _quotes(table: pa.Table, source: ReportSource) -> list[Quotes]:
    rows = table.to_pylist()
    passages = Passages(source, [_key(row) for row in rows])
    return [Quotes([_quote(row, passages) for row in rows])]


def _key(row: dict[str, Any]) -> Key:
    return row["tenant"], row["query_id"], row["chunk_id"]


def _quote(row: dict[str, Any], passages: Passages) -> Quote:
    probability_text = "" if row["probability"] is None else f", probability {row['probability']:.3f}"
    role = "positive" if row["people"] else "negative"
    note = f"to people; the judge: {row['verdict']}{probability_text}; stands for {number(round(row['weight']))} pairs"
    reasons = [plain(row[name]) for name in ("reasons", "judge_says") if row[name]]
    chunk = passages.text(_key(row), row["query"], row["chunk"], role, note)
    return Quote(row["query"], (row["tenant"], row["kind"]), [chunk], reasons)


SECTION = FigureSection(
    "validation",
    "The judge against its reviewers",
    (
        Figure(
            "release",
            "Release gate",
            "What was asked of the judge, and whether it was reached; a figure that is unknown does not pass.",
            sql_source(RELEASE),
            needs=("release",),
        ),
        Figure(
            "validation-confusion",
            "Labelled pairs",
            "What the judge said of them (rows), against what people did (columns); the sample holds more of the "
            "judge's positives than the run.",
            lambda source: statistics.confusion(source.tables),
            needs=("validation",),
        ),
        Figure(
            "validation",
            "Precision, recall and agreement, estimated for the whole run",
            "Each labelled pair counts for all that it stands for; whiskers are 95 % intervals. Recall is of the pool: "
            "what no retriever found, nobody saw.",
            sql_source(FIGURES),
            _figures,
            ("validation",),
            wide=True,
            max_rows=SCOPES,
        ),
        Figure(
            "validation-thresholds",
            "The threshold that fits best",
            "The one in force and the one of the highest kappa; fitted_kappa flatters, cross_validated_kappa is what "
            "to expect of new queries.",
            lambda source: statistics.fitted_thresholds(source.tables),
            needs=("validation",),
            wide=True,
        ),
        Figure(
            "reviewer-agreement",
            "Agreement between reviewers",
            "Cohen's kappa of each two, Krippendorff's alpha of all: where people differ, no judge can please them.",
            lambda source: statistics.reviewers(source.tables),
            needs=("reviewer_agreement",),
            wide=True,
            max_rows=20,
        ),
        Figure(
            "disagreements",
            "Where judge and people differ",
            "Those that stand for most pairs of the run first. Read them: who is right?",
            lambda source: statistics.disagreements(source.tables, READ),
            _quotes,
            ("disagreements", "queries", "chunks"),
            wide=True,
        ),
    ),
)
