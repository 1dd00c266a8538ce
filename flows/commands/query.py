"""darklode query: query a run's tables with SQL."""

import csv
import json
import sys
from typing import Annotated, Literal

import typer

from darklode.flows.commands.options import RunArgument, application
from darklode.flows.console import show
from darklode.flows.runs import existing
from darklode.pipeline.base import duckdb_views

app = application()


@app.command(epilog='Example: darklode query runs/first "SELECT split, count(*) AS n FROM triplets GROUP BY split"')
def query(
    run: RunArgument,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="DuckDB SQL; each table of the run is a view.")],
    form: Annotated[
        Literal["table", "csv", "json"],
        typer.Option("--format", metavar="NAME", help="Output format: table, csv or json."),
    ] = "table",
) -> None:
    """Query a run's tables with DuckDB SQL."""
    answer = duckdb_views.query(existing(run), sql)
    if form == "table":
        show(answer, f"{answer.num_rows:,} rows")
    elif form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(answer.column_names)
        writer.writerows(row.values() for row in answer.to_pylist())
    else:
        sys.stdout.write(json.dumps(answer.to_pylist(), default=str, ensure_ascii=False, indent=1) + "\n")
