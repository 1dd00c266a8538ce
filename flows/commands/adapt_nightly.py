"""darklode adapt nightly: mine, adapt from what is live, and release behind the gate, in one command."""

from pathlib import Path
from typing import Annotated

import typer

from darklode.flows.commands.adapters import PLACE, RegistryOption
from darklode.flows.commands.options import SetOption


def nightly(
    *,
    encoder: Annotated[str, typer.Option(metavar="NAME", help="As for `darklode adapt`.")],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where the adapted encoder goes: a folder of its own.")],
    config: Annotated[Path, typer.Option(help="Settings file with paths, as `darklode init` writes it.")],
    registry: RegistryOption = PLACE,
    tenants: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="A head for each of these tenants, or of all.")
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option("--share-with", metavar="TENANT", help="Guard tenant: live for it, too, if none falls; or all."),
    ] = None,
    test_days: Annotated[int, typer.Option(min=1, help="So many days at the end of the log are the test.")] = 7,
    assignments: SetOption = None,
) -> None:
    """Mine the log's new days, adapt from what is live, and release behind the gate: exit code 3 where that says no."""
    from darklode.flows.config import overrides
    from darklode.flows.console import console, printable, reporter
    from darklode.flows.jobs.nightly_adapt import format_summary, nightly_adapt
    from darklode.flows.launch import launch

    tenant_names = [tenant_name for tenant_name in (tenants or "").split(",") if tenant_name]
    launch(
        nightly_adapt,
        reporter(),
        encoder,
        out,
        registry,
        tenants=tenant_names,
        share_with=share,
        test_days=test_days,
        settings=overrides(assignments or []),
        config=str(config),
    )
    console.print(f"\n{printable(format_summary(registry))}", soft_wrap=True)
