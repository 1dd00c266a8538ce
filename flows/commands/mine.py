"""darklode mine: mine triplets from a search log."""

import json
from datetime import datetime
from types import ModuleType
from typing import Annotated, Any

import pyarrow as pa
import typer

from darklode.flows.commands.build import show_files
from darklode.flows.commands.checking import check_before, settings_for
from darklode.flows.commands.options import CheckOption, ConfigOption, PresetOption, SetOption, application
from darklode.flows.commands.run_summary import show_next_steps, show_summary
from darklode.flows.config import load_settings, read_project
from darklode.flows.console import console, reporter, show
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import CommandLineError, HeldBack
from darklode.pipeline.mine.admission.decisions import DecisionRequest
from darklode.pipeline.report import statistics
from darklode.pipeline.report.formatting import short_id
from darklode.schemas.settings import Settings

app = application()


MAX_DAYS_SHOWN = 8
MINED_FILES = {
    "report.html": "report",
    "README.md": "dataset card",
    "tables/triplets/": "triplets (Parquet)",
    "views.sql": "DuckDB views",
    "settings.yaml": "settings used",
}

_DATE: dict[str, Any] = {"formats": ["%Y-%m-%d"], "metavar": "YYYY-MM-DD"}

LogsOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Search logs: CSV, JSONL, Parquet or UBI; a file, folder, s3://bucket/prefix, or address of a database or "
        "search engine.",
    ),
]
DocsOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="Documents: folder of Markdown, HTML or text files, JSONL, CSV, Parquet, or address."
    ),
]
OutOption = Annotated[str | None, typer.Option(metavar="FOLDER", help="Run folder or s3://bucket/prefix.")]
DateOption = Annotated[
    datetime | None,
    typer.Option("--date", **_DATE, help="Read only this day; days read before are kept. Default: all new days."),
]
FromOption = Annotated[datetime | None, typer.Option("--from", **_DATE, help="First day to read; requires --to.")]
ToOption = Annotated[datetime | None, typer.Option("--to", **_DATE, help="Last day to read; requires --from.")]
TestFromOption = Annotated[
    datetime | None,
    typer.Option("--test-from", **_DATE, help="Hold out the log from this day on as test data; sets mining.test_from."),
]
RefreshOption = Annotated[bool, typer.Option("--refresh", help="Retrain the term-weighting model and the click model.")]
AcceptOption = Annotated[
    list[str] | None,
    typer.Option("--accept-day", metavar="YYYY-MM-DD", help="Admit a day that was held back. Repeatable."),
]
DiscardOption = Annotated[
    list[str] | None,
    typer.Option("--discard-day", metavar="YYYY-MM-DD", help="Exclude a day permanently. Repeatable."),
]
ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Reason recorded with --accept-day or --discard-day."),
]


ReportOption = Annotated[
    bool,
    typer.Option(
        "--report/--no-report",
        help="Write report.html and the card's figures. Without them a night is faster; `darklode report` adds them.",
    ),
]


@app.command(epilog="Example: darklode mine --logs data/sample --docs data/sample --out runs/clicks")
def mine(
    *,
    logs: LogsOption = None,
    docs: DocsOption = None,
    out: OutOption = None,
    date: DateOption = None,
    first: FromOption = None,
    last: ToOption = None,
    test_from: TestFromOption = None,
    refresh: RefreshOption = False,
    accept_days: AcceptOption = None,
    discard_days: DiscardOption = None,
    reason: ReasonOption = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    report: ReportOption = True,
    check: CheckOption = False,
) -> None:
    """Mine a search log into triplets; run it again to process only new days."""
    _check_dates(date, first, last)
    extra = [f"mining.test_from={json.dumps(test_from.date().isoformat())}"] if test_from else []
    config_file = read_project(config, preset)
    logs, docs = config_file.path("logs", logs, "--logs"), config_file.path("docs", docs, "--docs")
    out, extra = config_file.path("mined", out, "--out"), [*(assignments or []), *extra]
    settings = settings_for(lambda: load_settings(config_file.preset, config, extra), [logs, docs], out, mined=True)
    begin, end = (day and day.date() for day in (date or first, date or last))

    def checks(preflight: ModuleType) -> Any:
        from darklode.flows.night_summary import days

        decisions = DecisionRequest(accept_days or (), discard_days or (), reason)
        return preflight.mining_checks(logs, docs, out, settings, days(begin, end), decisions)

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
            report=report,
            preset=config_file.preset,
            settings=settings.model_dump(mode="json"),
        )
    except HeldBack:
        _summarise(Run(out), settings)
        raise
    _summarise(Run(out), settings)


def _check_dates(date: datetime | None, first: datetime | None, last: datetime | None) -> None:
    if date and (first or last):
        raise CommandLineError("use either --date for one day, or --from and --to for a range")
    if (first is None) != (last is None):
        raise CommandLineError("--from and --to must be given together; use --date for one day")


def _with_short_ids(verdicts: pa.Table) -> pa.Table:
    """The table with short ids of the judges, which fit a line."""
    names = pa.array([short_id(judge_id) for judge_id in verdicts["judge_id"].to_pylist()], pa.string())
    return verdicts.set_column(verdicts.schema.get_field_index("judge_id"), "judge", names)


def _summarise(run: Run, settings: Settings) -> None:
    console.print()
    with all_tables(run).open_local() as tables:
        show(statistics.triplet_sources(tables), "Triplets")
        nights = statistics.nights(tables)
        show(nights.slice(max(0, nights.num_rows - MAX_DAYS_SHOWN)), "Last days of the log")
        verdicts = statistics.verified_shares(tables)
        if verdicts.num_rows:
            show(_with_short_ids(verdicts), "Share that the judge calls relevant")
        show(statistics.association_counts(tables, settings.associate.max_lenders_per_query), "Associations")
    show_summary(run)
    existing = run.store.root_names()
    show_files(run, {name: label for name, label in MINED_FILES.items() if name.partition("/")[0] in existing})
    show_next_steps(run)
