"""Jobs that measure systems and judges, as functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from darklode.api.launching import Names, Overrides, changes_of, job_result, names_of, run_job
from darklode.api.progress import BarReporter
from darklode.api.rows import TableRows
from darklode.api.views import JobResult, Location, url_of
from darklode.flows.launch import launch
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import NotPublishable


def evaluate(
    run: Location,
    *,
    system: Names = (),
    run_file: Names = (),
    labels: Location | None = None,
    config: Location | None = None,
    settings: Overrides | None = None,
    silent: bool = False,
) -> JobResult:
    """Evaluate systems on a run's test queries, as `darklode evaluate` does.

    Args:
        run: the run.
        system: retrievers and encoders of the settings; empty: those of the run.
        run_file: TREC run files of other systems.
        labels: human labels of pairs, for AUC.
        config: YAML file with settings.
        settings: overrides of the run's settings.
        silent: show no progress.

    Returns:
        The run, with the figures `evaluation` and `evaluation_pairs`, and `online` and `online_pairs` of a log.

    Raises:
        DarklodeError: as the command line would print it.
    """
    from darklode.flows.commands.evaluate import summaries, summarize
    from darklode.flows.jobs.evaluate_systems import evaluate_systems

    options: dict[str, Any] = {
        "systems": names_of(system),
        "run_files": [str(Path(name).resolve()) for name in names_of(run_file)],
    }
    options |= {"human_labels": str(Path(url_of(labels)).resolve())} if labels is not None else {}
    chosen = {"evaluate": {name: value for name, value in options.items() if value}}
    reporter = run_job(evaluate_systems, silent, url_of(run), changes_of(config, settings, chosen))
    shown = {title: TableRows(rows) for title, rows in summaries(Run(url_of(run))).items()}
    return job_result(run, reporter, summarize, shown=shown)


def validate(
    run: Location,
    *,
    min_kappa: float | None = None,
    max_null_rate: float | None = None,
    min_recall: float | None = None,
    max_probe_rate: float | None = None,
    labels: Location | None = None,
    settings: Overrides | None = None,
    silent: bool = False,
) -> JobResult:
    """Compare a run's judge with its human reviewers and decide on the release, as `darklode validate` does.

    Args:
        run: a reviewed benchmark.
        min_kappa: minimum Cohen's kappa required for release.
        max_null_rate: maximum share of unreadable verdicts.
        min_recall: minimum recall of the judge required for release.
        max_probe_rate: maximum rate of wrong replies to probes.
        labels: new CSV file to write the human labels to, for `build(human=…)`.
        settings: overrides of the run's settings.
        silent: show no progress.

    Returns:
        The run. `passed` is False if a limit is missed, None if no limit is set. Figures: `confusion`,
        `estimates`, `tenants`, `retrievers`, `reviewers`, `thresholds`, `disagreements`.

    Raises:
        DarklodeError: as the command line would print it.
    """
    from darklode.flows.commands.validate import summarize
    from darklode.flows.jobs.validate_benchmark import check_reviewed, decide, validate_benchmark

    limits = {"min_kappa": min_kappa, "max_null_rate": max_null_rate, "min_recall": min_recall}
    limits |= {"max_probe_rate": max_probe_rate}
    chosen = {"validation": {name: limit for name, limit in limits.items() if limit is not None}}
    changes, validated = changes_of(None, settings, chosen), Run(url_of(run))
    check_reviewed(validated, changes)
    reporter = BarReporter(silent=silent)
    try:
        launch(validate_benchmark, reporter, url_of(run), changes)
        verdict, passed = decide(validated), has_limits(validated)
    except NotPublishable as error:
        verdict, passed = str(error), False
    file = None if labels is None else Path(url_of(labels))
    return job_result(run, reporter, lambda run, answer: summarize(run, answer, file), verdict=verdict, passed=passed)


def has_limits(run: Run) -> bool | None:
    """Whether a validated run, which misses no limit, has one; None if not."""
    from darklode.pipeline.base.duckdb_views import all_tables
    from darklode.pipeline.validate.gate import release, release_outcome

    return None if release_outcome(release(all_tables(run))) == "not asked" else True


def audit(run: Location, *, settings: Overrides | None = None, silent: bool = False) -> JobResult:
    """Recompute each retriever's recall and leave-one-out contribution, as `darklode audit` does.

    Args:
        run: a benchmark.
        settings: overrides of the run's settings.
        silent: show no progress.

    Returns:
        The run, with the figure `audit`.
    """
    from darklode.flows.commands.audit import summarize
    from darklode.flows.jobs.audit_retrievers import audit_retrievers
    from darklode.flows.runs import read_run

    read_run(Run(url_of(run)))
    return job_result(run, run_job(audit_retrievers, silent, url_of(run), changes_of(None, settings)), summarize)
