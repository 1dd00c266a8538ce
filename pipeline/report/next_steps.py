"""The commands to run next, by the state of a run: the same in the report and on screen."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from darklode.pipeline.mine.admission.held_days import held_days
from darklode.pipeline.report.key_facts import MINE_COMMAND, REVIEW_COMMAND, VALIDATE_COMMAND, VALIDATION_SQL
from darklode.pipeline.report.label_sets import label_sets
from darklode.pipeline.report.source import ReportSource, incomplete
from darklode.pipeline.validate.gate import release, release_outcome
from darklode.schemas.judging import NO_JUDGE

BUILD_COMMAND = "darklode build --docs DOCS --queries QUERIES --out RUN"
RUN_SETTINGS = "--config RUN/settings.yaml"
MAX_STEPS = 3
EVALUATE_COMMAND = "darklode evaluate RUN"
TRAINING_QUERIES_SQL = "SELECT count(*) AS n FROM queries WHERE split <> 'test'"
CERTAIN, POSSIBLE = "certain", "possible"
PROBE_STAGE_NAME = "judge_probe"
REVIEW_STAGES = {"review_sample", "near_misses", "reviews", "validate", "gate", "corrected_audit"}
EVALUATION_STAGES = {"test_queries", "test_rankings", "evaluate", "corrected_evaluation"}


@dataclass(frozen=True)
class NextStep:
    """A command to run next.

    Attributes:
        command: the command; RUN, DOCS, QUERIES, QRELS, LOGS, ENCODER, ADAPTED and OUT stand for paths and names.
        purpose: what it does, in a few words.
        arguments: more arguments, quoted for a shell, without placeholders.
    """

    command: str
    purpose: str
    arguments: str = ""

    def command_line(self, paths: Mapping[str, str] | None = None) -> str:
        """The whole command, with paths in place of their placeholders.

        Args:
            paths: path by placeholder, such as RUN.
        """
        path_of = paths or {}

        def quoted_path(match: re.Match[str]) -> str:
            placeholder, subpath = match.groups(default="")
            return shlex.quote(path_of[placeholder] + subpath) if placeholder in path_of else match[0]

        command = re.sub(r"(?<= )([A-Z]+)(/\S+)?(?= |$)", quoted_path, self.command)
        return f"{command} {self.arguments}".rstrip()


def next_steps(source: ReportSource) -> list[NextStep]:
    """At most MAX_STEPS commands, the most important first; empty for folders other than benchmarks and mined runs."""
    if source.adapted or source.generated or source.laws:
        return []
    return list(_mined_steps(source) if source.mined else _benchmark_steps(source))[:MAX_STEPS]


def _benchmark_steps(source: ReportSource) -> Iterator[NextStep]:
    unfinished_stages = set(incomplete(source))
    if unfinished_stages & source.stages.keys() - REVIEW_STAGES - {PROBE_STAGE_NAME}:
        qrels_option = " --qrels QRELS" if source.settings.judge.kind == NO_JUDGE else ""
        yield NextStep(f"{BUILD_COMMAND}{qrels_option} {RUN_SETTINGS}", "Continue the build")
        return
    if not source.tables.rows("triplets"):
        yield from _steps_without_triplets(source)
        return
    if PROBE_STAGE_NAME in unfinished_stages:
        yield NextStep("darklode judge probe RUN", "Probe the judge: replies are missing, or the verdicts have changed")
    if unfinished_stages & REVIEW_STAGES:
        yield NextStep(VALIDATE_COMMAND, "Evaluate the reviews again: the verdicts or the sample have changed")
    elif source.settings.judge.kind != NO_JUDGE:
        rows = source.tables.sql(VALIDATION_SQL).to_pylist()
        step = _step_after_review(source, rows[0]) if rows else _review_step(source)
        if step:
            yield step
        if rows and _misses_a_limit(source):
            return
    if unfinished_stages & EVALUATION_STAGES:
        yield NextStep(EVALUATE_COMMAND, "Evaluate the systems again: the test queries or their labels have changed")
    yield from _training_steps(source)


def _steps_without_triplets(source: ReportSource) -> Iterator[NextStep]:
    """What a run without triplets is good for, or how to find out why it has none."""
    if source.tables.sql(TRAINING_QUERIES_SQL)["n"][0].as_py():
        yield NextStep("darklode browse RUN", "Find out why there are no triplets: look at the verdicts")
        return
    yield NextStep(EVALUATE_COMMAND, "Evaluate systems: all queries are test queries, so there is nothing to train on")
    yield NextStep("darklode export RUN --format beir --to OUT", "Export for other tools")


def _review_step(source: ReportSource) -> NextStep:
    """How to measure labels that were not measured yet."""
    if source.n_answers:
        return NextStep(VALIDATE_COMMAND, "Estimate precision and recall from the reviews")
    return NextStep(REVIEW_COMMAND, "Label a sample to measure precision and recall")


def _step_after_review(source: ReportSource, row: Mapping[str, Any]) -> NextStep | None:
    """How to improve the labels, or their measurement; `row` is the row of `validation` over all pairs."""
    if row["precision"] is None or row["recall"] is None:
        return NextStep(REVIEW_COMMAND, "Label more pairs: too few for an estimate")
    if _misses_a_limit(source):
        threshold = row["fitted_threshold"]
        if None not in (threshold, row["threshold"]) and _agrees_better(row["cross_validated_kappa"], row["kappa"]):
            purpose = "Build with the threshold that agrees best with people"
            return NextStep(f"{BUILD_COMMAND} {RUN_SETTINGS}", purpose, f"--set judge.threshold={threshold:g}")
        purpose = "The labels miss a limit: read where judge and people differ, then use a better judge or prompt"
        return NextStep('darklode query RUN "FROM disagreements"', purpose)
    if _shortfall(source) == POSSIBLE:
        return NextStep(REVIEW_COMMAND, "Label more pairs: the labels may be less precise than required")
    return None


def _agrees_better(kappa: float | None, other: float | None) -> bool:
    """Whether a kappa is known and above the other, or the other is undefined."""
    return kappa is not None and (other is None or kappa > other)


def _misses_a_limit(source: ReportSource) -> bool:
    """Whether a limit of the release, or the wanted precision of a label set, is certainly missed."""
    return release_outcome(release(source.tables)) == "held back" or _shortfall(source) == CERTAIN


def _shortfall(source: ReportSource) -> str:
    """Whether a reviewed label set misses the wanted precision: CERTAIN with 95 % confidence, or POSSIBLE."""
    labels = source.settings.labels
    required_precision = {"test labels": labels.test_precision, "training triplets": labels.training_precision}
    rows = [row for row in label_sets(source.tables).to_pylist() if row["precision_low"] is not None]
    if any(row["precision_high"] < required_precision[row["labels"]] for row in rows):
        return CERTAIN
    return POSSIBLE if any(row["precision"] < required_precision[row["labels"]] for row in rows) else ""


TENANTS_SQL = "SELECT tenant FROM triplets GROUP BY tenant ORDER BY count(*) DESC, tenant"
"""An adapter belongs to one tenant: the one with the most triplets is proposed."""


def _training_steps(source: ReportSource) -> Iterator[NextStep]:
    tenants = source.tables.sql(TENANTS_SQL)["tenant"].to_pylist()
    yield NextStep(
        f"darklode adapt RUN --encoder {_encoder(source)} --out ADAPTED",
        "Train an encoder on the triplets",
        f"--set adapt.tenant={shlex.quote(tenants[0])}" if len(tenants) > 1 else "",
    )
    export_format = "sentence-transformers" if source.mined else "beir"
    yield NextStep(f"darklode export RUN --format {export_format} --to OUT", "Export for other tools")


def _encoder(source: ReportSource) -> str:
    """Model of the pool's first encoder, or a placeholder."""
    for name in source.settings.pool.retrievers:
        model = getattr(source.settings.encoders.get(name), "model", None)
        if isinstance(model, str):
            return shlex.quote(model)
    return "ENCODER"


def _mined_steps(source: ReportSource) -> Iterator[NextStep]:
    if incomplete(source).keys() & source.stages.keys():
        yield NextStep(f"{MINE_COMMAND} {RUN_SETTINGS}", "Continue mining")
        return
    days = held_days(source.tables)
    for day in days[:1]:
        same_date_days = [other for other in days if other.date == day.date and other is not day]
        purpose = "Use the day that was held back; --discard-day leaves it out for good"
        decision = f"--accept-day {shlex.quote(day.date if same_date_days else day.name)} --reason …"
        yield NextStep(f"{MINE_COMMAND} {RUN_SETTINGS}", purpose, decision)
        yield NextStep("darklode nights RUN", "Compare it with the days before")
    if not source.tables.rows("triplets"):
        yield NextStep(
            "darklode browse RUN", "Find out why there are no triplets: compare the ids of log and documents"
        )
        return
    yield from _training_steps(source)
