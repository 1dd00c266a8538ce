"""darklode adapters: list, release and roll back adapters per tenant."""

from __future__ import annotations

from typing import Annotated

import typer

from darklode.flows.commands.options import AdapterArgument, JsonOption, application
from darklode.flows.output import answering

app = application(no_args_is_help=True)

RegistryOption = Annotated[
    str,
    typer.Option("--registry", metavar="FOLDER", help="Registry of released adapters: a folder or s3://bucket/prefix."),
]
DEFAULT_REGISTRY = "adapters"

ADAPTER_COLUMNS = {
    "tenant": False, "adapter": False, "state": False, "base": False, "weights": False, "index": False,
    "data": False, "difference": True, "low": True, "high": True,
}  # fmt: skip
HISTORY_COLUMNS = {"at": False, "action": False, "tenant": False, "before": False, "now": False, "forced": False}


@app.callback()
def adapters() -> None:
    """List, release and roll back adapted encoders per tenant."""


@app.command(name="list", epilog="Example: darklode adapters list --registry adapters")
def list_(registry: RegistryOption = DEFAULT_REGISTRY, as_json: JsonOption = False) -> None:
    """List released adapters with their base encoder, index, training rows and gain, and the release history."""
    from darklode.pipeline.serve.registry import AdapterRegistry

    adapter_registry = AdapterRegistry(registry)
    with answering(as_json) as answer:
        rows = adapter_registry.rows()
        shown = rows if as_json else [{name: row[name] for name in ADAPTER_COLUMNS} for row in rows]
        answer.rows("adapters", shown, ADAPTER_COLUMNS, f"{len(rows):,} adapters in {registry}")
        answer.rows("history", adapter_registry.history, HISTORY_COLUMNS, "History")


@app.command(epilog="Example: darklode adapters release adapted/first --index runs/first")
def release(
    adapter: AdapterArgument,
    *,
    index: Annotated[str, typer.Option("--index", metavar="RUN", help="Run whose texts the adapter will search.")],
    registry: RegistryOption = DEFAULT_REGISTRY,
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share-with",
            metavar="TENANT",
            help="Also release to this tenant, or to `all`, unless a tenant gets worse. Repeatable.",
        ),
    ] = None,
    force: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Release despite failed checks and record this reason; never releases another tenant's adapter.",
        ),
    ] = None,
) -> None:
    """Make an adapter live for its tenant; refused if it does not match the index, has no gain, or hurts a tenant."""
    from darklode.flows import open_systems

    with answering(as_json=False) as answer:
        answer.say(open_systems.release(adapter, index, registry, share or (), force))


@app.command(epilog="Example: darklode adapters rollback acme")
def rollback(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Tenant whose adapter to roll back.")],
    *,
    registry: RegistryOption = DEFAULT_REGISTRY,
) -> None:
    """Roll back to the previous adapter, or to the base encoder if there is none."""
    from darklode.pipeline.serve.registry import AdapterRegistry

    adapter_registry = AdapterRegistry(registry)
    now = adapter_registry.rollback(tenant)
    with answering(as_json=False) as answer:
        folder = f": {adapter_registry.folder(now)}" if now else "."
        answer.say(f"{now or 'The base encoder'} is live for {tenant}{folder}")
