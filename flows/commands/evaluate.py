"""darklode evaluate: evaluate retrieval systems on a run's test queries."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from darklode.flows.commands.checking import check_before
from darklode.flows.commands.options import CheckOption, ConfigOption, JsonOption, RunArgument, SetOption, application
from darklode.flows.config import file_settings, overrides
from darklode.flows.console import console, reporter, show
from darklode.flows.output import Answer, PrintedAnswer, answering
from darklode.flows.prefect.progress import SilentReporter
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.schemas.setting_names import merge

if TYPE_CHECKING:
    import pyarrow as pa

app = application()

EVALUATION_TABLES = ("evaluation", "evaluation_pairs", "corrected_evaluation", "online", "online_pairs")


@app.command(epilog="Example: darklode evaluate runs/first --system bm25 --system minilm --config darklode.yaml")
def evaluate(
    run: RunArgument,
    *,
    system: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Retriever or encoder from the settings. Repeatable."),
    ] = None,
    run_file: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="TREC run file of another system. Repeatable."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Human labels of query–document pairs, for AUC; sets evaluate.human_labels."),
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    assignments: SetOption = None,
    check: CheckOption = False,
) -> None:
    """Evaluate systems on a run's test queries: recall, nDCG, AUC, and paired differences with intervals."""
    values = _values(system, run_file, labels, config, assignments or [])
    if not check_before(lambda preflight: preflight.evaluation_checks(run, values), only=check, quiet=as_json):
        return
    from darklode.flows.jobs.evaluate_systems import evaluate_systems
    from darklode.flows.launch import launch

    launch(evaluate_systems, SilentReporter() if as_json else reporter(), run, values)
    with answering(as_json) as answer:
        summarize(Run(run), answer)


def _values(
    system: list[str] | None,
    run_file: list[Path] | None,
    labels: Path | None,
    config: Path | None,
    assignments: Sequence[str],
) -> dict[str, Any]:
    """Settings from the file, --set and the options, in this order."""
    file = file_settings(config) if config else {}
    arguments = {
        "systems": system,
        "run_files": [str(run_path) for run_path in run_file or []] or None,
        "human_labels": str(labels) if labels else None,
    }
    option_values = {"evaluate": {name: value for name, value in arguments.items() if value is not None}}
    return merge(merge(file, overrides(assignments)), option_values)


def summarize(run: Run, answer: Answer) -> None:
    """The results of an evaluation; printed are summaries that fit 80 columns."""
    from darklode.flows.runs import read_run
    from darklode.pipeline.report import statistics
    from darklode.pipeline.report.caveats import weak_labels
    from darklode.pipeline.report.favored_systems import favored_systems

    tables = all_tables(run)
    if isinstance(answer, PrintedAnswer):
        console.print()
        for title, rows in summaries(run).items():
            show(rows, title)
    else:
        for name in EVALUATION_TABLES:
            answer.table(name, tables.read(name), name)
    weak = [caveat.text for caveat in weak_labels(statistics.judges(tables)["judge_id"].to_pylist())]
    for warning in [*weak, *favored_systems(tables, read_run(run).settings)]:
        answer.say(warning, warning=True)


def summaries(run: Run) -> "dict[str, pa.Table]":
    """Tables by title: the first measures, differences by the first one, and log measures."""
    from darklode.pipeline.report import evaluations

    tables = all_tables(run)
    return evaluations.summary_tables(tables) | evaluations.log_summary_tables(tables)
