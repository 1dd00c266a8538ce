"""darklode report: write a run's HTML report."""

from darklode.flows.commands.options import OpenOption, RunArgument, application
from darklode.flows.console import console, printable
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import CommandLineError, MissingPart

app = application()


@app.command(epilog="Example: darklode report runs/first")
def report(
    run: RunArgument,
    open_browser: OpenOption = False,
) -> None:
    """Write RUN/report.html, a single-page report of a run, adapter, generated queries or scaling laws."""
    from darklode.flows.stage_runner import write_pages
    from darklode.pipeline.report.page import REPORT_FILE

    existing_run = Run(run)
    console.print(printable(write_pages(existing_run)), soft_wrap=True)
    if open_browser:
        _open(existing_run, REPORT_FILE)


def _open(run: Run, file: str) -> None:
    """Open a file of a local run in a browser."""
    import webbrowser

    if run.store.local is None:
        raise CommandLineError(f"--open requires a local run; download {run.store.url}/{file} and open it")
    if not webbrowser.open((run.store.local / file).as_uri()):
        raise MissingPart(f"no browser could be started; open {run.store.local / file} yourself")
