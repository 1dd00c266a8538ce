"""The commands to run next, by the state of a run: the same in the report and on screen."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from darklode.pipeline.mine.admission.held_days import held_days
from darklode.pipeline.report.key_facts import MINE_COMMAND, REVIEW_COMMAND, VALIDATE_COMMAND, VALIDATION_SQL
from darklode.pipeline.report.label_sets import label_sets
from darklode.pipeline.report.source import ReportSource, incomplete
from darklode.pipeline.validate.gate import release, release_outcome
from darklode.schemas.judging import NO_JUDGE

BUILD_COMMAND = "darklode build --docs DOCS --queries QUERIES --out RUN"
RUN_SETTINGS = "--config RUN/settings.yaml"
CERTAIN, POSSIBLE = "certain", "possible"
REVIEW_STAGES = {"review_sample", "near_misses", "reviews", "validate", "gate"}


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
        command = self.command
        for name, path in (paths or {}).items():
            command = re.sub(
                rf"(?<= ){name}(/\S+)?(?= |$)", lambda match, path=path: shlex.quote(f"{path}{match[1] or ''}"), command
            )
        return f"{command} {self.arguments}".rstrip()


def next_steps(source: ReportSource) -> list[NextStep]:
    """The commands to run next, the most important first; empty for folders other than benchmarks and mined runs."""
    if source.adapted or source.generated or source.laws:
        return []
    return list(_mined_steps(source) if source.mined else _benchmark_steps(source))


def _benchmark_steps(source: ReportSource) -> Iterator[NextStep]:
    missing = set(incomplete(source))
    if missing - REVIEW_STAGES:
        given = " --qrels QRELS" if source.settings.judge.kind == NO_JUDGE else ""
        yield NextStep(f"{BUILD_COMMAND}{given} {RUN_SETTINGS}", "Continue the build")
        return
    if not source.tables.rows("triplets"):
        yield NextStep("darklode browse RUN", "Find out why there are no triplets: look at the verdicts")
        return
    if missing:
        yield NextStep(VALIDATE_COMMAND, "Evaluate the reviews again: the verdicts or the sample have changed")
    elif source.settings.judge.kind != NO_JUDGE:
        yield from _review_steps(source)
    yield from _training_steps(source)


def _review_steps(source: ReportSource) -> Iterator[NextStep]:
    """How to measure the labels, or to improve labels that were measured and found wanting."""
    rows = source.tables.sql(VALIDATION_SQL).to_pylist()
    if not rows:
        if source.n_answers:
            yield NextStep(VALIDATE_COMMAND, "Estimate precision and recall from the reviews")
        else:
            yield NextStep(REVIEW_COMMAND, "Label a sample: it measures precision and recall of the labels")
        return
    if rows[0]["precision"] is None or rows[0]["recall"] is None:
        yield NextStep(REVIEW_COMMAND, "Label more pairs: too few for an estimate")
        return
    shortfall = _shortfall(source)
    if release_outcome(release(source.tables)) == "held back" or shortfall == CERTAIN:
        fitted, threshold = rows[0]["fitted_threshold"], rows[0]["threshold"]
        if fitted is not None and threshold is not None and rows[0]["cross_validated_kappa"] > (rows[0]["kappa"] or -1):
            purpose = "Build with the threshold that agrees best with people"
            yield NextStep(f"{BUILD_COMMAND} {RUN_SETTINGS}", purpose, f"--set judge.threshold={fitted:g}")
        else:
            purpose = "The labels miss a limit: read where judge and people differ, then use a better judge or prompt"
            yield NextStep('darklode query RUN "FROM disagreements"', purpose)
    elif shortfall == POSSIBLE:
        yield NextStep(REVIEW_COMMAND, "Label more pairs: the labels may be less precise than required")


def _shortfall(source: ReportSource) -> str:
    """Whether a reviewed label set misses the wanted precision: CERTAIN with 95 % confidence, or POSSIBLE."""
    labels = source.settings.labels
    wanted = {"test labels": labels.test_precision, "training triplets": labels.training_precision}
    rows = [row for row in label_sets(source.tables).to_pylist() if row["precision_low"] is not None]
    if any(row["precision_high"] < wanted[row["labels"]] for row in rows):
        return CERTAIN
    return POSSIBLE if any(row["precision"] < wanted[row["labels"]] for row in rows) else ""


def _training_steps(source: ReportSource) -> Iterator[NextStep]:
    yield NextStep(f"darklode adapt RUN --encoder {_encoder(source)} --out ADAPTED", "Train an encoder on the triplets")
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
    if incomplete(source):
        yield NextStep(f"{MINE_COMMAND} {RUN_SETTINGS}", "Continue mining")
        return
    days = held_days(source.tables)
    for day in days[:1]:
        others = [other for other in days if other.date == day.date and other is not day]
        purpose = "Use the day that was held back; --discard-day leaves it out for good"
        decision = f"--accept-day {shlex.quote(day.date if others else day.name)} --reason …"
        yield NextStep(f"{MINE_COMMAND} {RUN_SETTINGS}", purpose, decision)
        yield NextStep("darklode nights RUN", "Compare it with the days before")
    if not source.tables.rows("triplets"):
        yield NextStep(
            "darklode browse RUN", "Find out why there are no triplets: compare the ids of log and documents"
        )
        return
    yield from _training_steps(source)
