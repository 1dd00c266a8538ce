"""darklode export: write a run in a standard format, or push it to the Hugging Face Hub."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from darklode.flows.commands.options import RunArgument, application
from darklode.flows.console import console, printable
from darklode.flows.runs import existing
from darklode.pipeline.base.errors import CommandLineError
from darklode.pipeline.export import formats, hub

app = application()


@app.command()
def export(
    run: RunArgument,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"{', '.join(formats.EXPORTS.own_kinds())}, or the name of a plugin's format. May be omitted with "
            "--push: the run itself.",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Output folder; must be new or empty. May be omitted with --push."),
    ] = None,
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
    push: Annotated[
        str | None,
        typer.Option(metavar="hf://ORG/NAME", help="Push to this dataset of the Hugging Face Hub; private by default."),
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Make the pushed dataset public.")] = False,
) -> None:
    """Export a run to a standard format for evaluation or training, e.g. BEIR, TREC or sentence-transformers."""
    options = {name: value for name, value in (("level", level), ("index", index)) if value is not None}
    if not push and (form is None or to is None):
        raise CommandLineError("name --format and --to, or --push")
    if form is None and (to or withhold_test or tenant or options):
        raise CommandLineError("--to, --withhold-test, --tenant, --level and --index need --format")
    if public and not push:
        raise CommandLineError("--public needs --push")
    if push:
        hub.dataset_id(push)  # before anything is written
    with TemporaryDirectory() as scratch:
        folder = to or Path(scratch, "dataset")
        if form is None:
            hub.copy_dataset(existing(run), folder)
        else:
            for path in formats.export(existing(run), form, folder, withhold_test, tenant, options):
                if to is not None or not path.is_relative_to(folder.resolve()):
                    console.print(printable(str(path)), soft_wrap=True)
        if push:
            console.print(printable(hub.push(folder, push, public=public)), soft_wrap=True)
