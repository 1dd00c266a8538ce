"""What `build` and `mine` print at their end: the facts, warnings and next commands of the report's first row."""

import pyarrow as pa

from darklode.flows.console import console, printable, show
from darklode.flows.report import report_source
from darklode.flows.runs import read_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.next_steps import NextStep, next_steps
from darklode.pipeline.report.summary import header

PLACEHOLDERS = {"docs": "DOCS", "queries": "QUERIES", "qrels": "QRELS", "logs": "LOGS"}
"""Placeholders in the next commands, by path in the run's inputs."""

OPEN_REPORT = NextStep("darklode report RUN --open", "Open the report")


def show_summary(run: Run) -> None:
    """Print the key facts of a run, and all warnings, the most important first."""
    with report_source(run) as (source, _):
        head = header(source)
    facts = [{"": fact.label, "value": fact.value, "note": fact.note} for fact in head.facts]
    show(pa.Table.from_pylist(facts), "Result")
    for warning in head.warnings:
        console.print(f"[yellow]{printable(warning.sentences)}[/yellow]", soft_wrap=True)


def show_next_steps(run: Run) -> None:
    """Print the commands to run next, with the paths of the run."""
    with report_source(run) as (source, _):
        steps = next_steps(source)
    inputs = read_inputs(run)
    paths = {name: getattr(inputs, field, None) for field, name in PLACEHOLDERS.items()}
    known_paths = {"RUN": run.store.url} | {name: path for name, path in paths.items() if path}
    console.print("\nNext:")
    for step in [OPEN_REPORT, *steps]:
        command = printable(step.command_line(known_paths))
        console.print(f"  {command}   [dim]{printable(step.purpose)}[/dim]", soft_wrap=True)
