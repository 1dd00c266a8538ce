"""darklode status: what a run holds, and what the next build or night would redo and why."""

import sys
from typing import Annotated, Any

import typer

from darklode.flows import runs
from darklode.flows.commands.options import JsonOption, RunArgument, application
from darklode.flows.jobs.registry import steps_of
from darklode.flows.output import Answer, answering
from darklode.flows.prefect.progress import summary
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.base.errors import ArtifactError, DarklodeError
from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveats import missing_probabilities

app = application()


@app.command()
def status(
    run: RunArgument,
    settings: Annotated[
        bool, typer.Option("--settings", help="Show the settings in force, as YAML for --config.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a run's stages, and what the next build would redo and why."""
    if settings:
        sys.stdout.write(settings_of(Run(run)))
        return
    with answering(as_json) as answer:
        opened_run = Run(run)
        answer.fact("run", opened_run.store.url)
        answer.rows("stages", stage_rows(opened_run), COLUMNS, opened_run.store.url)
        _show_days(opened_run, answer)
        _show_missing_probabilities(opened_run, answer)


def _show_missing_probabilities(run: Run, answer: Answer) -> None:
    """Say how many labels have no probability, and why."""
    if "verdicts" not in run.parts():
        return
    try:
        sentence = missing_probabilities(run.tables("verdicts"))
    except ArtifactError:  # the stage's own row says what is wrong with it
        return
    if sentence:
        answer.say(sentence, warning=True)


def _show_days(run: Run, answer: Answer) -> None:
    """Show the days of a log that are not just admitted."""
    # no other table is opened: status is for runs of which something is gone, too
    if "log_days" not in run.parts():
        return
    try:
        days = statistics.days(run.tables("log_days"))
    except ArtifactError as error:
        answer.say(str(error))
        return
    answer.table("days", days, "Days held, discarded, accepted or missing", nothing="")


COLUMNS = {"stage": False, "state": False, "result": False, "seconds": True}
"""Of `outlook`, and which hold numbers."""


def stage_rows(run: Run) -> list[dict[str, Any]]:
    """One row per stage: its state (stands, or why it would be redone), what it made and how long that took.

    A stage after one that would be redone may still stand: it is redone only if what it reads really changes.
    """
    steps = steps_of(runs.read_run(run))
    return [_row(run, step) for step in steps if step.enabled]


def _row(run: Run, step: Step) -> dict[str, Any]:
    try:
        state = step.plan(run).reason or "stands"
    except DarklodeError as error:
        state = str(error)
    manifest = run.manifest(step.stage)
    result, seconds = (summary(manifest), manifest.seconds) if manifest else (None, None)
    return {"stage": step.stage.name, "state": state, "result": result, "seconds": seconds}


def settings_of(run: Run) -> str:
    """The settings in force, as YAML that `--config` takes."""
    runs.read_run(run)
    return (run.store.read(runs.SETTINGS) or b"").decode()
