"""darklode: the command line."""

import atexit
import csv
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from flows import (
    build_commands,
    diff_commands,
    init_commands,
    interrupt,
    judge_commands,
    mine_commands,
    report_commands,
    review_commands,
    validate_commands,
)
from flows.config import load_settings, overrides
from flows.console import console, errors, printable, reporter, show
from flows.doctor import examine
from flows.options import RunArgument, SetOption
from flows.reporting import reporting
from flows.runs import existing
from flows.server import prefect_server
from pipeline.artifacts import Run
from pipeline.errors import DarklodeError
from pipeline.export import FORMATS, export
from pipeline.views import all_tables
from pipeline.views import query as run_sql

app = typer.Typer(
    name="darklode",
    help="Labelled retrieval data from documents, query logs and clicks.\n\n"
    "Start with `darklode build --docs DOCS --queries QUERIES --out RUN`; "
    "a second call with the same --out does only what changed.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(judge_commands.app)
app.command(epilog="Example: darklode init --docs handbook/ --queries queries.csv --runs runs")(init_commands.init)


@app.callback(invoke_without_command=True)
def root(show_version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False) -> None:
    """Options of every command."""
    if show_version:
        console.print(f"darklode {version('darklode')}")
        raise typer.Exit


app.command(
    epilog="Example: darklode build --docs handbook/ --queries queries.csv --out runs/first --set clean.language=null"
)(build_commands.build)
app.command(epilog="Example: darklode mine --logs data/sample --docs data/sample --out runs/clicks")(mine_commands.mine)
app.command(epilog="Example: darklode report runs/first")(report_commands.report)
app.command(epilog="Example: darklode review runs/first --port 8765")(review_commands.review)
app.command(epilog="Example: darklode validate runs/first --min-kappa 0.6 --max-null-rate 0.01 --min-recall 0.8")(
    validate_commands.validate
)
app.command(epilog="Example: darklode diff runs/monday runs/tuesday")(diff_commands.diff)


@app.command()
def audit(run: RunArgument, assignments: SetOption = None) -> None:
    """Measure again what each retriever contributes to a finished run."""
    with prefect_server() as ready, reporting(reporter()):
        from flows.audit_retrievers import audit_retrievers  # noqa: PLC0415

        ready()
        audit_retrievers(run, overrides(assignments or []))
    build_commands.show_audit(Run(run))


@app.command()
def status(
    run: RunArgument,
    settings: Annotated[
        bool, typer.Option("--settings", help="Show the settings in force, as YAML for --config.")
    ] = False,
) -> None:
    """Show a run's stages, and what the next build would redo and why."""
    from flows.outlook import outlook, settings_of  # noqa: PLC0415

    if settings:
        sys.stdout.write(settings_of(Run(run)))
    else:
        show(outlook(Run(run)), Run(run).store.url)


@app.command(epilog='Example: darklode query runs/first "SELECT split, count(*) AS n FROM triplets GROUP BY split"')
def query(
    run: RunArgument,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="DuckDB SQL; every table of the run is a view.")],
    form: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="How to print the answer.")
    ] = "table",
) -> None:
    """Ask a run's tables in SQL."""
    answer = run_sql(existing(run), sql)
    if form == "table":
        show(answer, f"{answer.num_rows:,} rows")
    elif form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(answer.column_names)
        writer.writerows(row.values() for row in answer.to_pylist())
    else:
        sys.stdout.write(json.dumps(answer.to_pylist(), default=str, ensure_ascii=False, indent=1) + "\n")


@app.command(name="export")
def export_command(
    run: RunArgument,
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")],
    to: Annotated[Path, typer.Option(help="A new or empty folder.")],
    withhold_test: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Another one, for the labels of the test split: --to is without them."),
    ] = None,
) -> None:
    """Write a run in a format that evaluators and trainers read."""
    for path in export(existing(run), form, to, withhold_test):
        console.print(printable(str(path)), soft_wrap=True)


@app.command()
def pool(run: RunArgument) -> None:
    """Show what each retriever took and gave, and the pool's sizes."""
    from pipeline import statistics  # noqa: PLC0415 (heavy)
    from pipeline.retrieval import retrieval  # noqa: PLC0415 (heavy)

    tables = all_tables(existing(run))
    show(retrieval(Run(run)), "Retrieval")
    show(statistics.pool_sizes(tables), "Candidates per query")
    show(statistics.pool_found_by(tables), "Found by so many retrievers")


@app.command()
def doctor(
    preset: Annotated[str | None, typer.Option(help="Ask for this preset: exit code 1 if it lacks something.")] = None,
) -> None:
    """Check what is installed and reachable, and what each preset needs."""
    rows, healthy = examine(preset)
    show(rows, f"darklode {version('darklode')}")
    if not healthy:
        raise typer.Exit(1)


@app.command()
def cache(
    prune: Annotated[
        list[str] | None, typer.Option(metavar="ENCODER", help="Delete this encoder's vectors; `all` deletes all.")
    ] = None,
    assignments: SetOption = None,
) -> None:
    """Show what the embedding cache holds, per encoder; prune it."""
    from pipeline.encoders.cache import EmbeddingCache  # noqa: PLC0415 (heavy)

    settings = load_settings(assignments=assignments or []).cache
    vectors = EmbeddingCache(settings.root, settings.dtype)
    if prune:
        freed = vectors.prune(None if "all" in prune else prune) + vectors.prune_orphans()
        console.print(f"{freed:,} bytes freed")
    show(vectors.usage(), "Embedding cache")


INTERRUPTED = 130  # what a shell reports after Ctrl-C


def guarded() -> int:
    """Run the command; what a user can mend becomes one message on stderr. Returns the exit code."""
    interrupt.listen()
    try:
        app()
    except DarklodeError as error:
        errors.print("[red]error:[/red]", printable(str(error)), soft_wrap=True)
        return error.code
    except BrokenPipeError:  # such as `| head`
        return 1
    except SystemExit as stop:  # how typer ends, having explained what it refused
        if stop.code == INTERRUPTED:
            errors.print("stopped; the same command goes on from here")
        return stop.code if isinstance(stop.code, int) else 1
    return 0


def main() -> NoReturn:
    """Entry point of the command `darklode`.

    It leaves without tearing the interpreter down: Prefect's threads still hold modules then, of which DuckDB would
    complain at length on stderr.
    """
    code = guarded()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
