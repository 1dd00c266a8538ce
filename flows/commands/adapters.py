"""darklode adapters: which adapted encoder is live for each tenant, and which was before."""

from __future__ import annotations

from typing import Annotated

import typer

from darklode.flows.commands.options import JsonOption, application
from darklode.flows.output import answering

app = application(no_args_is_help=True)

RegistryOption = Annotated[
    str, typer.Option("--registry", metavar="FOLDER", help="Where released adapters are kept: a folder, or s3://….")
]
PLACE = "adapters"

COLUMNS = {
    "tenant": False, "adapter": False, "state": False, "base": False, "weights": False, "index": False,
    "data": False, "difference": True, "low": True, "high": True,
}  # fmt: skip
HISTORY = {"at": False, "action": False, "tenant": False, "before": False, "now": False, "forced": False}


@app.callback()
def adapters() -> None:
    """Release adapted encoders tenant by tenant, list them, and go back to the one before."""


@app.command(name="list", epilog="Example: darklode adapters list --registry adapters")
def list_(registry: RegistryOption = PLACE, as_json: JsonOption = False) -> None:
    """List what was released: base, weights, index, the rows it learned from, its lift, and the history."""
    from darklode.pipeline.serve.registry import AdapterRegistry

    adapter_registry = AdapterRegistry(registry)
    with answering(as_json) as answer:
        rows = adapter_registry.rows()
        shown = rows if as_json else [{name: row[name] for name in COLUMNS} for row in rows]
        answer.rows("adapters", shown, COLUMNS, f"{len(rows):,} adapters in {registry}")
        answer.rows("history", adapter_registry.history, HISTORY, "History")


@app.command(epilog="Example: darklode adapters release adapted/first --index runs/first")
def release(
    adapter: Annotated[str, typer.Argument(metavar="ADAPTER", help="A folder of `darklode adapt`, or s3://….")],
    *,
    index: Annotated[str, typer.Option("--index", metavar="RUN", help="The run whose texts it is to search.")],
    registry: RegistryOption = PLACE,
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share-with", metavar="TENANT", help="Live for this tenant, too, or for all of the run, if none falls."
        ),
    ] = None,
    force: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Release what is refused, and write down why; never another tenant's."),
    ] = None,
) -> None:
    """Make an adapter its tenant's live one; refused is what does not fit, lifts nothing or lets a tenant fall."""
    from darklode.flows import open_systems

    with answering(as_json=False) as answer:
        answer.say(open_systems.release(adapter, index, registry, share or (), force))


@app.command(epilog="Example: darklode adapters rollback acme")
def rollback(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose adapter.")], *, registry: RegistryOption = PLACE
) -> None:
    """Go back to the adapter that was live before; before the first one that is the base."""
    from darklode.pipeline.serve.registry import AdapterRegistry

    adapter_registry = AdapterRegistry(registry)
    now = adapter_registry.rollback(tenant)
    with answering(as_json=False) as answer:
        answer.say(f"{now or 'the base'} is live for {tenant}" + (f": {adapter_registry.folder(now)}" if now else "."))
