"""darklode export: a run in a format that evaluators and trainers read."""

from pathlib import Path
from typing import Annotated

import typer

from darklode.flows.commands.options import RunArgument, application
from darklode.flows.console import console, printable
from darklode.flows.runs import existing
from darklode.pipeline.export import formats

app = application()


@app.command()
def export(
    run: RunArgument,
    form: Annotated[
        str, typer.Option("--format", help=f"One of {', '.join(formats.EXPORTS.own_kinds())}, or a package's.")
    ],
    to: Annotated[Path, typer.Option(help="A new or empty folder.")],
    withhold_test: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Another one, for the labels of the test split: --to is without them."),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Only this tenant's rows; else all tenants go into one folder.")
    ] = None,
) -> None:
    """Write a run in a format that evaluators and trainers read."""
    for path in formats.export(existing(run), form, to, withhold_test, tenant):
        console.print(printable(str(path)), soft_wrap=True)
