"""darklode report: a run as one page."""

from darklode.flows.commands.options import RunArgument, application
from darklode.flows.console import console, printable
from darklode.pipeline.base.artifacts import Run

app = application()


@app.command(epilog="Example: darklode report runs/first")
def report(run: RunArgument) -> None:
    """Write RUN/report.html: a run as one page, complete or not."""
    from darklode.flows.jobs import steps_of
    from darklode.flows.runs import recorded
    from darklode.flows.steps import stages
    from darklode.pipeline.report.page import FILE, page
    from darklode.pipeline.report.source import source

    there = Run(run)
    made = recorded(there)
    with source(there, made.settings, stages(steps_of(there, made))) as given:
        there.store.write(FILE, page(given))
    console.print(f"{printable(there.store.url)}/{FILE}", soft_wrap=True)
