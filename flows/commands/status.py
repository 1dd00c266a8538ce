"""darklode status: show a run's stages and what the next build would recompute."""

import sys
from typing import Annotated, Any

import typer

from darklode.flows import runs
from darklode.flows.commands.options import JsonOption, RunArgument, application
from darklode.flows.job_history import read_history
from darklode.flows.jobs.registry import steps_of
from darklode.flows.output import Answer, answering
from darklode.flows.prefect.progress import summary
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import ArtifactError, DarklodeError
from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveats import missing_probabilities
from darklode.pipeline.report.label_sets import label_sets

app = application()

N_HISTORY = 10


@app.command()
def status(
    run: RunArgument,
    settings: Annotated[
        bool, typer.Option("--settings", help="Print the run's settings as YAML for --config.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a run's stages, and which ones the next build would recompute and why."""
    if settings:
        sys.stdout.write(settings_of(Run(run)))
        return
    with answering(as_json) as answer:
        opened_run = Run(run)
        answer.fact("run", opened_run.store.url)
        answer.rows("stages", stage_rows(opened_run), STAGE_COLUMNS, opened_run.store.url)
        _show_leakage(opened_run, answer)
        _show_days(opened_run, answer)
        _show_label_sets(opened_run, answer)
        _show_missing_probabilities(opened_run, answer)
        _show_history(opened_run, answer)


def _show_leakage(run: Run, answer: Answer) -> None:
    """Show what training and validation share."""
    if "split_leakage" not in run.parts():
        return
    try:
        leakage = statistics.leakage(run.tables("split_leakage"))
    except ArtifactError:  # the stage's row reports the problem
        return
    answer.table("leakage", leakage, "Shared by training and validation", nothing="")


def _show_label_sets(run: Run, answer: Answer) -> None:
    """Show yield and precision of test labels and training triplets, once a benchmark has them."""
    if not {"queries", "qrels", "verdicts", "triplets"} <= run.parts().keys():
        return
    try:
        answer.table("label_sets", label_sets(all_tables(run)), "Label sets", nothing="")
    except ArtifactError:  # the stage's row reports the problem
        return


def _show_missing_probabilities(run: Run, answer: Answer) -> None:
    """Report labels without a probability and the reasons."""
    if "verdicts" not in run.parts():
        return
    try:
        sentence = missing_probabilities(run.tables("verdicts"))
    except ArtifactError:  # the stage's row reports the problem
        return
    if sentence:
        answer.say(sentence, warning=True)


HISTORY_COLUMNS = {"started": False, "job": False, "state": False, "seconds": True, "message": False}


def _show_history(run: Run, answer: Answer) -> None:
    """Show the last jobs that ran without a Prefect server."""
    entries = read_history(run)[-N_HISTORY:]
    if not entries:
        return
    rows = [{name: getattr(entry, name) for name in HISTORY_COLUMNS} for entry in entries]
    answer.rows("history", rows, HISTORY_COLUMNS, "Last jobs")


def _show_days(run: Run, answer: Answer) -> None:
    """Show days of a log that are held back, discarded, accepted or missing."""
    # opens no other table: status must work for damaged runs
    if "log_days" not in run.parts():
        return
    try:
        days = statistics.days(run.tables("log_days"))
    except ArtifactError as error:
        answer.say(str(error))
        return
    answer.table("days", days, "Held, discarded, accepted and missing days", nothing="")


STAGE_COLUMNS = {"stage": False, "state": False, "result": False, "seconds": True}


def stage_rows(run: Run) -> list[dict[str, Any]]:
    """One row per stage: state (up to date, or the reason to recompute), result and seconds.

    A stage after one to be recomputed can be up to date: it is recomputed only if its inputs really change.
    """
    steps = steps_of(runs.read_run(run))
    return [_row(run, step) for step in steps if step.enabled]


def _row(run: Run, step: Step) -> dict[str, Any]:
    try:
        state = step.plan(run).reason or "up to date"
    except DarklodeError as error:
        state = str(error)
    manifest = run.manifest(step.stage)
    result, seconds = (summary(manifest), manifest.seconds) if manifest else (None, None)
    return {"stage": step.stage.name, "state": state, "result": result, "seconds": seconds}


def settings_of(run: Run) -> str:
    """A run's settings as YAML for `--config`."""
    runs.read_run(run)
    return (run.store.read(runs.SETTINGS) or b"").decode()
