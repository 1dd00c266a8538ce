"""darklode adapt compare: every way to adapt an encoder, with controls, in one table."""

from typing import Annotated, Any

import typer

from darklode.flows.commands.options import ConfigOption, SetOption
from darklode.schemas.adaptation import SEEDS


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN …", help="Builds and mined runs to learn from.")],
    *,
    encoder: Annotated[str, typer.Option(metavar="NAME", help="As for `darklode adapt`.")],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where it goes: a folder of its own, or s3://….")],
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="May be given again; none: all methods but joint, which embeds the documents again."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How often each method is trained.")] = SEEDS,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Compare all ways to adapt, and controls, on the same queries, steps and seeds; hands nothing over."""
    from darklode.flows.config import BESIDES, overrides, read_config
    from darklode.flows.console import console, printable, reporter, show
    from darklode.flows.jobs.compare_adapters import compare_adapters
    from darklode.flows.launch import launch
    from darklode.pipeline.base.artifacts import Run
    from darklode.pipeline.train.release.comparison_page import PAGE, by_system, deciding
    from darklode.schemas.setting_names import merge

    file: dict[str, Any] = (
        {key: value for key, value in read_config(config).items() if key not in BESIDES} if config else {}
    )
    values = merge(file, overrides(assignments or []))
    launch(compare_adapters, reporter(), runs, encoder, out, values, tuple(method or ()), seeds)
    result_run = Run(out)
    show(by_system(result_run, deciding(result_run)), f"Test queries: {deciding(result_run)}")
    console.print(f"\n{printable(result_run.store.path(PAGE))} has all of it.", soft_wrap=True)
