"""darklode diff: what changed between two runs."""

from collections.abc import Iterator
from typing import Annotated, Any

import pyarrow as pa
import typer
import yaml

from darklode.flows.commands.options import JsonOption, application
from darklode.flows.output import answering
from darklode.flows.runs import existing
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.setting_names import iterate_leaves

app = application()


OldRun = Annotated[str, typer.Argument(metavar="RUN_A", help="The older run's folder or s3://bucket/prefix.")]
NewRun = Annotated[str, typer.Argument(metavar="RUN_B", help="The newer one's.")]


@app.command(epilog="Example: darklode diff runs/monday runs/tuesday")
def diff(
    run_a: OldRun,
    run_b: NewRun,
    examples: Annotated[int, typer.Option(min=0, help="Most examples of each kind.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs: settings, documents, chunks, queries, labels and triplets that came, went or changed."""
    from darklode.pipeline.base.duckdb_views import all_tables
    from darklode.pipeline.report import diff as compared

    runs = existing(run_a), existing(run_b)
    differ = pa.Table.from_pylist(list(_settings(*runs)), SETTINGS)
    with answering(as_json) as answer, compared.attach_both(*map(all_tables, runs)) as tables:
        answer.table("settings", differ, "Settings that differ", "The settings are the same.")
        count_rows = compared.counts(tables)
        answer.table("rows", count_rows, "Rows")
        same = not any(sum(count_rows[name].to_pylist()) for name in ("removed", "added", "changed"))
        answer.fact("same_rows", same, "Both runs hold the same rows." if same else None)
        if same:
            return
        if "labels" in count_rows["what"].to_pylist():
            reasons, flipped = compared.label_reasons(tables), compared.changed_verdicts(tables, examples)
            answer.table("labels", reasons, "Labels in one run only", "Both runs label the same pairs.")
            answer.table("flipped", flipped, "Labels that flipped", "No label flipped.")
        for subject, rows in compared.examples(tables, examples):
            answer.table(f"examples_{subject}", rows, f"Examples: {subject}", "")


SETTINGS = pa.schema([("setting", pa.string()), ("before", pa.string()), ("after", pa.string())])


def _settings(old: Run, new: Run) -> Iterator[dict[str, str | None]]:
    before, after = (
        dict(iterate_leaves(yaml.safe_load(run.store.read("settings.yaml") or b"") or {})) for run in (old, new)
    )
    for name in sorted(before.keys() | after.keys()):
        old_text, other = _text(before, name), _text(after, name)
        if old_text != other:
            yield {"setting": name, "before": old_text, "after": other}


def _text(values: dict[str, Any], name: str) -> str | None:
    """A setting as it is written; None where the run does not know it."""
    return str(values[name]) if name in values else None
