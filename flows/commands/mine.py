"""darklode mine: triplets from a search log."""

import json
import shlex
import sys
from datetime import datetime
from types import ModuleType
from typing import Annotated, Any

import typer

from darklode.flows.commands.checking import check_before, settings_for
from darklode.flows.commands.options import CheckOption, ConfigOption, PresetOption, SetOption, application
from darklode.flows.config import load_settings, read_project
from darklode.flows.console import console, printable, reporter, show
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import CommandLineError, HeldBack
from darklode.pipeline.mine.admission.decisions import DecisionRequest
from darklode.pipeline.report import statistics
from darklode.pipeline.report.caveats import mined_caveats, weak_ranker
from darklode.schemas.settings import Settings

app = application()


NIGHTS = 8
PLACES = {
    "report.html": "report to look at",
    "README.md": "dataset card",
    "tables/triplets/": "triplets (Parquet)",
    "views.sql": "views for DuckDB",
    "settings.yaml": "settings in force",
}

ISO = ["%Y-%m-%d"]


@app.command(epilog="Example: darklode mine --logs data/sample --docs data/sample --out runs/clicks")
def mine(
    *,
    logs: Annotated[
        str | None, typer.Option(help="Search logs: CSV, JSONL, Parquet, UBI; a file, folder or s3://….")
    ] = None,
    docs: Annotated[
        str | None, typer.Option(help="Documents: Markdown, HTML or text folder, JSONL, CSV, Parquet.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Where the run lives: a folder or s3://bucket/prefix.")] = None,
    date: Annotated[
        datetime | None,
        typer.Option("--date", formats=ISO, metavar="DAY", help="Read this day only; days read before stay."),
    ] = None,
    first: Annotated[
        datetime | None, typer.Option("--from", formats=ISO, metavar="DAY", help="Read the days from this one …")
    ] = None,
    last: Annotated[datetime | None, typer.Option("--to", formats=ISO, metavar="DAY", help="… to this one.")] = None,
    test_from: Annotated[
        datetime | None,
        typer.Option("--test-from", formats=ISO, metavar="DAY", help="From this day on the log is test data."),
    ] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Learn planner and click model anew.")] = False,
    accept_days: Annotated[
        list[str] | None,
        typer.Option("--accept-day", metavar="DAY", help="Take in a day that was held back. May be given again."),
    ] = None,
    discard_days: Annotated[
        list[str] | None,
        typer.Option("--discard-day", metavar="DAY", help="Leave a day out for good. May be given again."),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for the record.")] = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    check: CheckOption = False,
) -> None:
    """Mine a search log into triplets; a second call reads only what is new."""
    if date and (first or last):
        raise CommandLineError("--date is one day, --from and --to are a range: give one or the other")
    if (first is None) != (last is None):
        raise CommandLineError("--from and --to are a range: give both of them, or --date for one day")
    extra = [f"mining.test_from={json.dumps(test_from.date().isoformat())}"] if test_from else []
    config_file = read_project(config, preset)
    logs, docs = config_file.path("logs", logs, "--logs"), config_file.path("docs", docs, "--docs")
    out, extra = config_file.path("mined", out, "--out"), [*(assignments or []), *extra]
    settings = settings_for(lambda: load_settings(config_file.preset, config, extra), [logs, docs], out, mined=True)
    begin, end = (day and day.date() for day in (date or first, date or last))

    def checks(preflight: ModuleType) -> Any:
        from darklode.flows.jobs.night_summary import days

        wish = DecisionRequest(accept_days or (), discard_days or (), reason)
        return preflight.of_mine(logs, docs, out, settings, days(begin, end), wish)

    if not check_before(checks, only=check):
        return
    from darklode.flows.jobs.mine_logs import mine_logs
    from darklode.flows.launch import launch

    try:
        launch(
            mine_logs,
            reporter(),
            logs,
            docs,
            out,
            first=begin,
            last=end,
            refresh=refresh,
            accept_days=accept_days,
            discard_days=discard_days,
            reason=reason,
            preset=config_file.preset,
            settings=settings.model_dump(mode="json"),
        )
    except HeldBack as error:
        _summarise(Run(out), settings)
        _print_options(error)
        raise
    _summarise(Run(out), settings)


def _print_options(error: HeldBack) -> None:
    """The commands that decide the days, as they are to be typed."""
    console.print("\n[yellow]Days are held back. Look into the log, then[/yellow]")
    for option, purpose in (("--accept-day", "take them in"), ("--discard-day", "leave them out for good")):
        arguments = [part for day in error.days for part in (option, day)]
        command = shlex.join(["darklode", *sys.argv[1:], *arguments, "--reason", "…"])
        console.print(f"{purpose}:\n  {printable(command)}", soft_wrap=True, highlight=False, markup=False)


def _summarise(run: Run, settings: Settings) -> None:
    tables = all_tables(run)
    console.print()
    show(statistics.triplet_sources(tables), "Triplets")
    nights = statistics.nights(tables)
    show(nights.slice(max(0, nights.num_rows - NIGHTS)), "The last days of the log")
    verdicts = statistics.confirmed(tables)
    if verdicts.num_rows:
        show(verdicts, "Relevant to the judge")
    show(statistics.lenders(tables, settings.associate.max_lenders_per_query), "Associations")
    for sentence in filter(None, [*mined_caveats(tables), weak_ranker(settings)]):
        console.print(f"[yellow]{printable(sentence)}[/yellow]", soft_wrap=True)
    for name, label in PLACES.items():
        console.print(f"{label:<22} {printable(run.store.url)}/{name}", soft_wrap=True)
