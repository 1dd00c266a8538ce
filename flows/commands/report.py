"""darklode report: a run as one page."""

from typing import Annotated

import typer

from darklode.flows.commands.options import RunArgument, application
from darklode.flows.console import console, printable
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import CommandLineError, MissingPart

app = application()


@app.command(epilog="Example: darklode report runs/first")
def report(
    run: RunArgument,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser.")] = False,
) -> None:
    """Write RUN/report.html: a run, an adapted encoder, generated queries or laws as one page, complete or not."""
    from darklode.flows.jobs.registry import write_report_of
    from darklode.pipeline.report.page import FILE

    existing_run = Run(run)
    console.print(printable(write_report_of(existing_run)), soft_wrap=True)
    if open_browser:
        _open(existing_run, FILE)


def _open(run: Run, file: str) -> None:
    """Open a file of a run in a browser; one that lies elsewhere has to be fetched first."""
    import webbrowser

    if run.store.local is None:
        raise CommandLineError(f"--open is for runs on this machine; fetch {run.store.url}/{file} and open that")
    if not webbrowser.open((run.store.local / file).as_uri()):
        raise MissingPart(f"no browser could be started here; open {run.store.local / file} in one")
