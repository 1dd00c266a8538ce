"""darklode generate: queries for texts that nobody searched for yet."""

from __future__ import annotations

from functools import reduce
from typing import Annotated, Any

import typer

from darklode.flows.commands.options import ConfigOption, RunArgument, SetOption, application

app = application(no_args_is_help=True)


@app.command(epilog="Example: darklode generate runs/first --source ict --out runs/generated")
def generate(
    run: RunArgument,
    *,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where they go: a folder of their own, or s3://….")],
    source: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="ict, t5 or llm (the judge's model); sets generate.kind."),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Write queries for a run's texts; what is sieved, finds its text and is judged relevant, `adapt` learns from."""
    from darklode.flows.config import file_settings, overrides
    from darklode.flows.console import console, printable, reporter, show
    from darklode.flows.jobs.generate_queries import generate_queries
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.generate.card import coverage, outcomes, summary_sentence
    from darklode.schemas.setting_names import merge

    file: dict[str, Any] = file_settings(config) if config else {}
    source_override = {"generate": {"kind": source}} if source else {}
    launch(generate_queries, reporter(), run, out, reduce(merge, [file, overrides(assignments or []), source_override]))
    result_run = Run(out)
    show(coverage(result_run), "Documents, and those that a real query reached")
    show(outcomes(result_run), "What became of the queries")
    console.print(f"\n{printable(summary_sentence(result_run))}.", soft_wrap=True)
