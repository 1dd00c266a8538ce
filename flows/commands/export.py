"""darklode export: write a run in a standard format."""

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
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"{', '.join(formats.EXPORTS.own_kinds())}, or the name of a plugin's format.",
        ),
    ],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Output folder; must be new or empty.")],
    withhold_test: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the test labels to this folder instead of --to."),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Export only this tenant; default: all tenants in one folder.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="Unit of exported judgments: document (default) or chunk."),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Index of the rated documents; for elastic-ranking-evaluation."),
    ] = None,
) -> None:
    """Export a run to a standard format for evaluation or training, e.g. BEIR, TREC or sentence-transformers."""
    options = {name: value for name, value in (("level", level), ("index", index)) if value is not None}
    for path in formats.export(existing(run), form, to, withhold_test, tenant, options):
        console.print(printable(str(path)), soft_wrap=True)
