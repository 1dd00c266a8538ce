"""darklode adapt nightly: mine the log, update the live adapter and release it."""

from typing import Annotated

import typer

from darklode.flows.commands.adapters import DEFAULT_REGISTRY, RegistryOption
from darklode.flows.commands.options import EncoderOption, OutOption, ProjectOption, SetOption


def nightly(
    *,
    encoder: EncoderOption,
    out: OutOption,
    config: ProjectOption,
    registry: RegistryOption = DEFAULT_REGISTRY,
    tenants: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Train one adapter for each of these tenants; or `all`.")
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share-with",
            metavar="TENANT",
            help="Also release to this tenant, or to `all`, unless a tenant gets worse. Repeatable.",
        ),
    ] = None,
    test_days: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of days at the end of the log held out for testing.")
    ] = 7,
    assignments: SetOption = None,
) -> None:
    """Mine new days of the log, train from the live adapter, and release if all checks pass; otherwise exit code 3."""
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
