"""darklode adapt compare: compare the training methods in one table."""

from typing import Annotated

import typer

from darklode.flows.commands.options import ConfigOption, EncoderOption, OutOption, RunsArgument, SetOption
from darklode.schemas.adaptation import SEEDS


def compare(
    runs: RunsArgument,
    *,
    encoder: EncoderOption,
    out: OutOption,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Method to compare. Repeatable; default: all except joint, which re-embeds documents."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Number of seeds per method.")] = SEEDS,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Compare training methods and baselines on the same queries, steps and seeds; releases no encoder."""
    from darklode.flows.config import changed_values
    from darklode.flows.console import console, printable, reporter, show
    from darklode.flows.jobs.compare_adapters import compare_adapters
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.train.release.comparison_page import PAGE, by_system, deciding

    values = changed_values(config, assignments)
    launch(compare_adapters, reporter(), runs, encoder, out, values, tuple(method or ()), seeds)
    result_run = Run(out)
    show(by_system(result_run, deciding(result_run)), f"Test queries: {deciding(result_run)}")
    console.print(f"\nFull comparison: {printable(result_run.store.path(PAGE))}", soft_wrap=True)
