"""darklode diff: what changed between two runs."""

from collections.abc import Iterator
from typing import Annotated, Any

import pyarrow as pa
import typer
import yaml

from darklode.flows.commands.options import application
from darklode.flows.console import console, show
from darklode.flows.runs import existing
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.keys import leaves

app = application()


OldRun = Annotated[str, typer.Argument(metavar="RUN_A", help="The older run's folder or s3://bucket/prefix.")]
NewRun = Annotated[str, typer.Argument(metavar="RUN_B", help="The newer one's.")]


@app.command(epilog="Example: darklode diff runs/monday runs/tuesday")
def diff(
    run_a: OldRun,
    run_b: NewRun,
    examples: Annotated[int, typer.Option(min=0, help="Most examples of each kind.")] = 3,
) -> None:
    """Compare two runs: settings, documents, chunks, queries, labels and triplets that came, went or changed."""
    from darklode.pipeline.base.views import all_tables
    from darklode.pipeline.report import diff as compared

    runs = existing(run_a), existing(run_b)
    _show("Settings that differ", pa.Table.from_pylist(list(_settings(*runs)), SETTINGS), "The settings are the same.")
    with compared.both(*map(all_tables, runs)) as tables:
        found = compared.counts(tables)
        show(found, "Rows")
        if not any(sum(found[name].to_pylist()) for name in ("removed", "added", "changed")):
            console.print("Both runs hold the same rows.")
            return
        if "labels" in found["what"].to_pylist():
            _show("Labels in one run only", compared.label_reasons(tables), "Both runs label the same pairs.")
            _show("Labels that flipped", compared.flipped(tables, examples), "No label flipped.")
        for what, rows in compared.examples(tables, examples):
            if rows.num_rows:
                show(rows, f"Examples: {what}")


SETTINGS = pa.schema([("setting", pa.string()), ("before", pa.string()), ("after", pa.string())])


def _settings(old: Run, new: Run) -> Iterator[dict[str, str | None]]:
    before, after = (dict(leaves(yaml.safe_load(run.store.read("settings.yaml") or b"") or {})) for run in (old, new))
    for name in sorted(before.keys() | after.keys()):
        one, other = _text(before, name), _text(after, name)
        if one != other:
            yield {"setting": name, "before": one, "after": other}


def _text(values: dict[str, Any], name: str) -> str | None:
    """A setting as it is written; None where the run does not know it."""
    return str(values[name]) if name in values else None


def _show(title: str, rows: pa.Table, nothing: str) -> None:
    if rows.num_rows:
        show(rows, title)
    else:
        console.print(f"{nothing}\n")
