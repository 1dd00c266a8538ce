"""darklode validate: compare the judge with human reviewers and decide on the release."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer

from darklode.flows.commands.options import JsonOption, RunArgument, SetOption, application
from darklode.flows.config import overrides
from darklode.flows.console import cell, console, printable, reporter
from darklode.flows.jobs.validate_benchmark import check_reviewed, decide, validate_benchmark
from darklode.flows.launch import launch
from darklode.flows.output import Answer, PrintedAnswer, answering
from darklode.flows.prefect.progress import SilentReporter
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import InputError, NotPublishable

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Tables

app = application()


N_DISAGREEMENTS = 10


@app.command(epilog="Example: darklode validate runs/first --min-kappa 0.6 --max-null-rate 0.01 --min-recall 0.8")
def validate(
    run: RunArgument,
    *,
    min_kappa: Annotated[
        float | None,
        typer.Option(metavar="N", help="Minimum Cohen's kappa required for release; sets validation.min_kappa."),
    ] = None,
    max_null_rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Maximum share of unreadable verdicts; sets validation.max_null_rate."),
    ] = None,
    min_recall: Annotated[
        float | None,
        typer.Option(metavar="N", help="Minimum recall of the judge required for release; sets validation.min_recall."),
    ] = None,
    max_probe_rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Maximum rate of wrong replies to probes; sets validation.max_probe_rate."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the human labels to a new CSV file for `build --human`.")
    ] = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare a run's judge with its human reviewers and decide on the release; exit code 3 if a limit is missed."""
    limits = {"min_kappa": min_kappa, "max_null_rate": max_null_rate, "min_recall": min_recall}
    limits |= {"max_probe_rate": max_probe_rate}
    limit_assignments = [f"validation.{name}={value}" for name, value in limits.items() if value is not None]
    values = overrides([*(assignments or []), *limit_assignments])
    check_reviewed(Run(run), values)
    progress_reporter = SilentReporter() if as_json else reporter()
    with answering(as_json) as answer:
        try:
            launch(validate_benchmark, progress_reporter, run, values)
        except NotPublishable as error:
            summarize(Run(run), answer, labels)
            answer.fact("publishable", False)
            answer.fact("decision", str(error))
            raise
        summarize(Run(run), answer, labels)
        decision = decide(Run(run))
        answer.fact("publishable", True)
        answer.fact("decision", decision, f"\n{decision}")


def summarize(run: Run, answer: Answer, labels: Path | None) -> None:
    """Agreement, estimates and disagreements; writes the human labels to the file `labels`, if any."""
    from darklode.pipeline.base.duckdb_views import all_tables
    from darklode.pipeline.report import statistics
    from darklode.pipeline.report.evaluations import CORRECTED_TITLE, corrected_figures

    tables = all_tables(run)
    answer.table("confusion", statistics.confusion(tables), "Labelled pairs: judge (rows) against people (columns)")
    estimates = statistics.validated(tables)
    if isinstance(answer, PrintedAnswer):
        estimates = _transpose(estimates)
    answer.table("estimates", estimates, "Estimates for all pairs of the run (95 % intervals)")
    by_retriever = statistics.validated_by_retriever(tables)
    reviewers = "Agreement between reviewers: pairwise Cohen's kappa, overall Krippendorff's alpha"
    thresholds = "Current and best-fitting threshold"
    answer.table("tenants", statistics.validated_by_tenant(tables), "By tenant", "")
    answer.table("retrievers", by_retriever, "By retriever, for the pairs it found", "")
    answer.table("reviewers", statistics.reviewers(tables), reviewers, "")
    answer.table("thresholds", statistics.fitted_thresholds(tables), thresholds, "")
    for subject, name in (("Retrievers", "corrected_audit"), ("Systems", "corrected_evaluation")):
        rows = corrected_figures(tables, name) if isinstance(answer, PrintedAnswer) else tables.read(name)
        answer.table(name, rows, f"{subject}. {CORRECTED_TITLE}", "")
    for sentence in _advice(tables):
        answer.say(sentence)
    if isinstance(answer, PrintedAnswer):
        _show_disagreements(tables)
    else:
        answer.table("disagreements", statistics.disagreements(tables, N_DISAGREEMENTS), "")
    if labels is not None:
        answer.say(_write_labels(tables, labels))


def _transpose(rows: pa.Table) -> pa.Table:
    """One row's columns as rows."""
    cells = [(name, cell(value)) for row in rows.to_pylist() for name, value in row.items()]
    return pa.table({"figure": [name for name, _ in cells], "estimate": [value for _, value in cells]})


def _advice(tables: "Tables") -> Iterator[str]:
    """Sentences on missing estimates and on the fitted threshold."""
    from darklode.pipeline.base.agreement import MIN_LABELS, MIN_OF_EACH

    row = tables.sql("SELECT * FROM validation WHERE tenant IS NULL AND retriever IS NULL").to_pylist()[0]
    if row["outside"]:
        yield f"{row['outside']:,} labels belong to pairs outside the sample and are not used in the estimates."
    if row["precision"] is None:
        yield "Precision is unknown: no pair that the judge calls relevant is labelled."
    if row["missed"] is None:
        yield "Recall is unknown: no pair that the judge calls not relevant is labelled."
    if row["fitted_threshold"] is None:
        yield (
            f"No threshold was fitted: this requires {MIN_LABELS} labelled pairs with a probability, at least "
            f"{MIN_OF_EACH} relevant and {MIN_OF_EACH} not, and a judge that agrees with people better than chance."
        )
    elif row["threshold"] is not None and (row["cross_validated_kappa"] or -1.0) > (row["kappa"] or -1.0):
        yield f"To build with the fitted threshold: --set judge.threshold={row['fitted_threshold']:g}"


def _show_disagreements(tables: "Tables") -> None:
    from darklode.pipeline.report import statistics

    rows, total = statistics.disagreements(tables, N_DISAGREEMENTS).to_pylist(), tables.rows("disagreements")
    if total:
        console.print(f"\n[bold]Disagreements between judge and people: {len(rows)} of {total:,}[/bold]")
    for row in rows:
        probability_text = "" if row["probability"] is None else f", probability {row['probability']:.3f}"
        judge_text = f"judge: {row['verdict']}{probability_text}; represents {row['weight']:,.0f} pairs"
        console.print(f"\n{row['kind']} [dim]({judge_text})[/dim]")
        for name in ("query", "chunk", "reasons", "judge_says"):
            if row[name]:
                text = " ".join(row[name].split())
                console.print(f"  {name.replace('_', ' '):<10} {printable(text[:300])}", soft_wrap=True)
    if total > len(rows):
        console.print("\nAll disagreements: darklode query RUN 'FROM disagreements'")


def _write_labels(tables: "Tables", file: Path) -> str:
    from darklode.pipeline.validate.labels import labels_csv

    try:
        with file.open("x", encoding="utf-8", newline="") as lines:
            lines.write(labels_csv(tables))
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}; give a new file to --labels") from error
    return f"Wrote the human labels to {file}. To build with them: darklode build --human {file} …"
