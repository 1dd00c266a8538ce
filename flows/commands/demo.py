"""darklode demo: build a benchmark from the bundled sample."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from darklode.flows.commands.build import build
from darklode.flows.commands.options import application

app = application()

SAMPLE_FOLDER = "sample"


@app.command(epilog="Example: darklode demo --out darklode-demo")
def demo(
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Run folder or s3://bucket/prefix.")] = "darklode-demo",
) -> None:
    """Build a benchmark from the sample documents and queries bundled with Darklode."""
    sample = str(sample_folder())
    build(docs=sample, queries=sample, out=out)


def sample_folder() -> Path:
    """Path of the sample, in the installed package or in the repository."""
    return Path(str(files("darklode").joinpath(SAMPLE_FOLDER)))
