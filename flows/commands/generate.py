"""darklode generate: generate synthetic queries for a run's texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from darklode.flows.commands.options import ConfigOption, OutOption, RunArgument, SetOption, application

if TYPE_CHECKING:
    from darklode.flows.output import Answer
    from darklode.pipeline.base.artifacts import Run

app = application(no_args_is_help=True)


@app.command(epilog="Example: darklode generate runs/first --source ict --out runs/generated")
def generate(
    run: RunArgument,
    *,
    out: OutOption,
    source: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Generator: ict, t5 or llm (the judge's model); sets generate.kind."),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Generate synthetic queries; those that pass filters, round-trip retrieval and the judge are used by `adapt`."""
    from darklode.flows.config import changed_values
    from darklode.flows.console import reporter
    from darklode.flows.jobs.generate_queries import generate_queries
    from darklode.flows.launch import launch
    from darklode.flows.output import PrintedAnswer
    from darklode.pipeline.base.artifacts import Run
    from darklode.schemas.setting_names import merge

    source_override = {"generate": {"kind": source}} if source else {}
    launch(generate_queries, reporter(), run, out, merge(changed_values(config, assignments), source_override))
    summarize(Run(out), PrintedAnswer())


def summarize(run: Run, answer: Answer) -> None:
    """Coverage of the documents, and the queries by outcome."""
    from darklode.pipeline.generate.card import coverage, outcomes, saturation_sentence, summary_sentence

    answer.table("coverage", coverage(run), "Documents covered by real and generated queries")
    answer.table("outcomes", outcomes(run), "Generated queries by outcome")
    if more := saturation_sentence(run):
        answer.fact("saturation", more, f"\n{more}")
    answer.fact("verdict", summary_sentence(run), f"\n{summary_sentence(run)}.")
