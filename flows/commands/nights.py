"""darklode nights: list the last days of a mined log, and what waits for a decision."""

from pathlib import Path
from typing import Annotated

import typer

from darklode.flows.commands.options import JsonOption, RunArgument, application

app = application()

N_DAYS = 60


@app.command(epilog="Example: darklode nights runs/mined --html nights.html")
def nights(
    run: RunArgument,
    days: Annotated[int, typer.Option(metavar="N", min=1, help="Number of last days to list.")] = N_DAYS,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Only this tenant.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with the measures as sparklines.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the last days of a mined log with state, rows and reasons, and the commands for held days."""
    from darklode.flows.night_decisions import read_mined, run_decision_command
    from darklode.flows.output import answering
    from darklode.pipeline.base.artifacts.store import explain_write_errors
    from darklode.pipeline.base.errors import CommandLineError
    from darklode.pipeline.report.nights import TABLES_READ, LastDays, nights_page

    opened, inputs = read_mined(run)
    last = LastDays.read(opened.tables(*TABLES_READ), days, tenant)
    if tenant is not None and not last.rows:
        raise CommandLineError(f"the last {days} days of {opened.store.url} have no tenant {tenant}")
    command = run_decision_command(opened, inputs)
    with answering(as_json) as answer:
        answer.fact("run", opened.store.url)
        answer.table("nights", last.table(), f"Last {days} days of the log", "No day was read yet.")
        answer.fact("measures", list(last.measures))
        held_nights = last.held_nights(command)
        answer.fact("held", [vars(day) for day in held_nights])
        for day in [] if as_json else held_nights:
            reasons = "; ".join(day.reasons)
            answer.say(f"{day.date} {day.tenant} is held: {reasons}", warning=True)
            answer.say(f"Use it:\n  {day.accept}\nLeave it out for good:\n  {day.discard}\n")
        if html:
            with explain_write_errors(html):
                html.write_bytes(nights_page(opened.store.url, last, command))
            answer.fact("page", str(html), str(html))
