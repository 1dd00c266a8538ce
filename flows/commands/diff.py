"""darklode diff: compare two runs."""

from collections.abc import Iterator
from typing import Annotated, Any

import pyarrow as pa
import typer
import yaml

from darklode.flows.commands.options import JsonOption, application
from darklode.flows.output import Answer, answering
from darklode.flows.runs import existing
from darklode.pipeline.base.artifacts import Run, Tables
from darklode.schemas.setting_names import iterate_leaves

app = application()

N_MEASURES_IN_JSON = 1000
"""JSON has all measures, the terminal the first one."""

OldRun = Annotated[str, typer.Argument(metavar="RUN_A", help="Older run: folder or s3://bucket/prefix.")]
NewRun = Annotated[str, typer.Argument(metavar="RUN_B", help="Newer run: folder or s3://bucket/prefix.")]


@app.command(epilog="Example: darklode diff runs/monday runs/tuesday")
def diff(
    run_a: OldRun,
    run_b: NewRun,
    examples: Annotated[int, typer.Option(metavar="N", min=0, help="Maximum number of examples of each kind.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs: changed settings, measures, documents, queries, labels and triplets."""
    from darklode.pipeline.base.duckdb_views import all_tables
    from darklode.pipeline.report import diff as comparison

    runs = existing(run_a), existing(run_b)
    setting_rows = pa.Table.from_pylist(list(_changed_settings(*runs)), SETTING_ROWS_SCHEMA)
    with answering(as_json) as answer, comparison.attach_both(*map(all_tables, runs)) as tables:
        answer.table("settings", setting_rows, "Changed settings", "The settings are the same.")
        _compare_evaluations(answer, *map(all_tables, runs), as_json=as_json)
        count_rows = comparison.counts(tables)
        answer.table("rows", count_rows, "Rows")
        is_same = not any(sum(count_rows[name].to_pylist()) for name in ("removed", "added", "changed"))
        answer.fact("same_rows", is_same, "Both runs contain the same rows." if is_same else None)
        if is_same:
            return
        if "labels" in count_rows["table"].to_pylist():
            reasons, flipped = comparison.label_reasons(tables), comparison.changed_verdicts(tables, examples)
            answer.table("labels", reasons, "Labels in one run only", "Both runs label the same pairs.")
            answer.table("flipped", flipped, "Flipped labels", "No label flipped.")
        for subject, rows in comparison.examples(tables, examples):
            answer.table(f"examples_{subject}", rows, f"Examples: {subject}", "")


def _compare_evaluations(answer: Answer, old: Tables, new: Tables, *, as_json: bool) -> None:
    """Add measures of both runs and their differences on shared test queries, if `evaluate` measured both."""
    from darklode.pipeline.evaluate.paired import ResamplingSettings
    from darklode.pipeline.report.evaluation_diff import compare_evaluations

    if not (old.rows("evaluation_queries") and new.rows("evaluation_queries")):
        return
    diff = compare_evaluations(old, new, ResamplingSettings(), N_MEASURES_IN_JSON if as_json else 1)
    title = f"Measures on the {diff.queries:,} test queries of both runs"
    answer.table("evaluation", diff.rows, title, "The runs share no test query.")
    answer.fact("relabelled_queries", diff.relabelled)
    if diff.relabelled:
        answer.say(
            f"{diff.relabelled:,} of {diff.queries:,} shared test queries have other labels in {new.url}; differences "
            "in their measures may come from labels",
            warning=True,
        )


SETTING_ROWS_SCHEMA = pa.schema([("setting", pa.string()), ("before", pa.string()), ("after", pa.string())])


def _changed_settings(old: Run, new: Run) -> Iterator[dict[str, str | None]]:
    before, after = (
        dict(iterate_leaves(yaml.safe_load(run.store.read("settings.yaml") or b"") or {})) for run in (old, new)
    )
    for name in sorted(before.keys() | after.keys()):
        old_value, new_value = _text(before, name), _text(after, name)
        if old_value != new_value:
            yield {"setting": name, "before": old_value, "after": new_value}


def _text(values: dict[str, Any], name: str) -> str | None:
    """A setting's value as text; None if the run does not have it."""
    return str(values[name]) if name in values else None
