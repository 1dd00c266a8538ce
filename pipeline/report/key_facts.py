"""What a run holds and how good it is, in a few facts: the first row of the report, and the summary on screen."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveats import biased_retrievers
from darklode.pipeline.report.formatting import number, share
from darklode.pipeline.report.label_sets import label_sets
from darklode.pipeline.report.source import ReportSource, incomplete
from darklode.pipeline.report.statistic import Statistic
from darklode.schemas.judging import NO_JUDGE

NOT_MEASURED = "not measured"

REVIEW_COMMAND = "darklode review RUN"
VALIDATE_COMMAND = "darklode validate RUN"
MINE_COMMAND = "darklode mine --logs LOGS --docs DOCS --out RUN"
VERIFY_COMMAND = f"{MINE_COMMAND} --preset local"
"""Checks mined pairs with the encoder judge that a package ships."""


@dataclass(frozen=True)
class KeyFact:
    """A fact of a run.

    Attributes:
        label: what it is.
        value: a number, a name, or `NOT_MEASURED`.
        note: one short line: interval, sample size, or why it is unknown.
        figure: key of the report's figure with the details; empty if there is none.
        command: command that measures an unknown value, with RUN, LOGS and DOCS for the paths.
    """

    label: str
    value: str
    note: str = ""
    figure: str = ""
    command: str = ""

    @property
    def is_measured(self) -> bool:
        return self.value != NOT_MEASURED


def key_facts(source: ReportSource) -> list[KeyFact]:
    """The facts of a benchmark or mined run, possibly incomplete; empty for other folders."""
    if source.adapted or source.generated or source.laws:
        return []
    return list(_mined_facts(source) if source.mined else _benchmark_facts(source))


def _benchmark_facts(source: ReportSource) -> Iterator[KeyFact]:
    tables, written = source.tables, source.written_tables
    if "queries" not in written:
        return
    if "qrels" not in written:
        yield KeyFact("Queries", number(tables.rows("queries")), "no labels yet", "query-length")
        return
    sets = {row["labels"]: row for row in label_sets(tables).to_pylist()}
    yield _queries(tables, sets)
    yield _label_set(sets.get("test labels"), "Test positives", "labels")
    if "triplets" in written:
        yield _label_set(sets.get("training triplets"), "Training triplets", "triplets")
    yield from _judge_quality(source)
    if "audit_retrievers" in written:
        yield from _retrievers(source)


def _queries(tables: Tables, sets: dict[str, dict[str, Any]]) -> KeyFact:
    """Number of queries, and how many of each label set have a positive."""
    parts = [
        f"{number(sets[labels]['with_positive'])} of {number(sets[labels]['queries'])} {name}"
        for labels, name in (("test labels", "test"), ("training triplets", "training"))
        if labels in sets
    ]
    note = f"{' and '.join(parts)} queries have a positive" if parts else ""
    return KeyFact("Queries", number(tables.rows("queries")), note, "queries-without-positives")


def _label_set(row: dict[str, Any] | None, label: str, figure: str) -> KeyFact:
    """Size of a label set with the share of relevant ones, which is an estimate until people have reviewed it."""
    if row is None:
        return KeyFact(label, "0", "no queries in this split", figure)
    relevant = share(row["precision"], 0)
    if not row["positives"]:
        note = ""
    elif row["precision_low"] is not None:
        note = f"{relevant} relevant ({format_interval(row, 'precision')}), {row['basis']}"
    elif row["basis"] == "given labels":
        note = "labels given by people"
    elif row["precision"] is not None:
        note = f"{relevant} relevant by the {row['basis']}"
    else:
        note = "share of relevant ones unknown"
    return KeyFact(label, number(row["positives"]), note, figure)


def format_interval(row: dict[str, Any], name: str) -> str:
    """A 95 % interval of a share: `95 %: 74–90 %`."""
    return f"95 %: {100 * row[f'{name}_low']:.0f}–{100 * row[f'{name}_high']:.0f} %"


VALIDATION_SQL = "SELECT * FROM validation WHERE tenant IS NULL AND retriever IS NULL"
QUALITY_LABELS = {"precision": "Precision of the judge", "recall": "Recall of the judge"}


def _judge_quality(source: ReportSource) -> Iterator[KeyFact]:
    """Precision and recall of the judge's verdicts over the pool, as estimated from people's reviews."""
    if source.settings.judge.kind == NO_JUDGE:
        yield KeyFact("Precision of the labels", "given", "people labelled them; no judge ran")
        yield KeyFact("Recall of the labels", NOT_MEASURED, "texts without a label count as not relevant")
        return
    rows = source.tables.sql(VALIDATION_SQL).to_pylist()
    is_outdated = bool(rows) and "validate" in incomplete(source)
    for name, label in QUALITY_LABELS.items():
        if is_outdated:
            command = VALIDATE_COMMAND if name == "precision" else ""
            yield KeyFact(label, NOT_MEASURED, "the labels have changed since the review was evaluated", "", command)
        elif rows and rows[0][f"{name}_low"] is not None:
            note = f"{format_interval(rows[0], name)}; {number(rows[0]['labelled'])} pairs reviewed"
            yield KeyFact(label, share(rows[0][name], 0), note, "validation")
        else:
            note, figure, command = _missing_quality(source, bool(rows))
            yield KeyFact(label, NOT_MEASURED, note, figure, command if name == "precision" else "")


def _missing_quality(source: ReportSource, is_validated: bool) -> tuple[str, str, str]:
    """Note, figure and command of an estimate that does not exist."""
    if is_validated:
        return "too few pairs reviewed", "validation", REVIEW_COMMAND
    if source.n_answers:
        return f"{number(source.n_answers)} answers, not evaluated yet", "", VALIDATE_COMMAND
    return "nobody has reviewed the labels", "", REVIEW_COMMAND


def _retrievers(source: ReportSource) -> Iterator[KeyFact]:
    """Best and worst retriever by recall@10 of the judged positives, without those that the labels favour."""
    biased = biased_retrievers(source.tables, source.settings)
    scores = {
        row["retriever"]: row["recall_at_10"]
        for row in statistics.audit_with_recall_at_10(source.tables).to_pylist()
        if row["tenant"] is None and row["recall_at_10"] is not None
    }
    yield from _best_and_worst(scores, biased, "retriever", "Recall@10", "audit-retrievers")


def _best_and_worst(
    scores: dict[str, float], favored: Collection[str], noun: str, measure: str, figure: str
) -> Iterator[KeyFact]:
    """The best and the worst of some systems that the labels do not favour; nothing if none has a score."""
    ranked = sorted(scores.keys() - favored, key=lambda name: (-scores[name], name))
    if not_ranked := [name for name in scores if name in favored]:
        pronoun = "it" if len(not_ranked) == 1 else "them"
        measure += f"; {', '.join(not_ranked)} not ranked: the labels favour {pronoun}"
    if len(ranked) == 1:
        yield KeyFact(f"Only {noun}", f"{ranked[0]} {scores[ranked[0]]:.2f}", measure, figure)
    elif ranked:
        best, worst = ranked[0], ranked[-1]
        note = f"worst: {worst} {scores[worst]:.2f}; {measure}"
        yield KeyFact(f"Best {noun}", f"{best} {scores[best]:.2f}", note, figure)


def _mined_facts(source: ReportSource) -> Iterator[KeyFact]:
    tables, written = source.tables, source.written_tables
    if "impressions" in written:
        note = f"from {number(tables.rows('impressions'))} impressions"
        yield KeyFact("Queries in the log", number(tables.rows("log_queries")), note, "nights")
    if "mined_pairs" in written:
        yield KeyFact("Positives", number(tables.rows("mined_pairs")), "pairs of query and document", "nights")
    if "triplets" in written:
        sources = statistics.triplet_sources(tables).to_pylist()
        train, validation = (sum(row[split] for row in sources) for split in ("train", "validation"))
        note = f"{number(train)} train, {number(validation)} validation" if sources else "see the warnings"
        yield KeyFact("Triplets", number(tables.rows("triplets")), note, "mined-triplets")
        yield _mined_precision(tables)
        yield KeyFact("Recall of the labels", NOT_MEASURED, "a log does not tell what it never showed")
    if "log_days" in written:
        yield _days(tables)
    yield from _systems(source)


def _mined_precision(tables: Tables) -> KeyFact:
    """Share of the checked positives of the most frequent source that the judge calls relevant."""
    rows = [
        row
        for row in statistics.verified_shares(tables).to_pylist()
        if row["tier"] == "large" and row["relevant"] is not None
    ]
    if not rows:
        note = "nobody has read the pairs, and no judge has checked them"
        return KeyFact("Precision of the labels", NOT_MEASURED, note, "", VERIFY_COMMAND)
    row = max(rows, key=lambda row: (row["positives"], row["source"]))
    source_name = row["source"].replace("_", " ")
    note = f"{format_interval(row, 'relevant')}; {number(row['positives'])} pairs of {source_name}"
    return KeyFact("Relevant by the judge", share(row["relevant"], 0), note, "confirmed")


DAY_COUNTS = Statistic("""
    SELECT count(DISTINCT date) FILTER (state IN ('admitted', 'accepted')) AS used,
           count(DISTINCT date) FILTER (state = 'held') AS held, max(date) AS last
    FROM log_days
""")


def _days(tables: Tables) -> KeyFact:
    (row,) = DAY_COUNTS(tables).to_pylist()
    notes = [f"{number(row['held'])} held back"] if row["held"] else []
    notes += [f"last: {row['last']}"] if row["last"] else []
    return KeyFact("Days of the log used", number(row["used"]), "; ".join(notes), "log-days")


EVALUATION_SQL = """
    WITH means AS (SELECT system, measure, value FROM evaluation WHERE tenant IS NULL AND part = 'counted')
    SELECT * FROM means WHERE measure = (SELECT min_by(measure, (measure <> 'nDCG@10', measure)) FROM means)
"""


def _systems(source: ReportSource) -> Iterator[KeyFact]:
    """Best and worst system of `darklode evaluate`, if it ran, without those with a model of the judge."""
    from darklode.pipeline.report.favored_systems import systems_with_judge_models  # slow to import

    if rows := source.tables.sql(EVALUATION_SQL).to_pylist():
        favored = systems_with_judge_models(source.tables, source.settings)
        scores = {row["system"]: row["value"] for row in rows}
        yield from _best_and_worst(scores, favored, "system", rows[0]["measure"], "evaluation")
