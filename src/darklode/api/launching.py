"""What the functions of the API share: their arguments, running a job, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from darklode.api.progress import BarReporter
from darklode.api.rows import TableRows
from darklode.api.views import Findings, JobResult, Location, RunView, url_of
from darklode.flows.config import file_settings, read_project
from darklode.flows.launch import launch
from darklode.flows.output import CollectedAnswer
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.setting_names import merge

Names = str | Path | RunView | Sequence[Location]
"""One value, or several where the command's option is repeatable."""
Overrides = Mapping[str, Any]
"""Settings by dotted name or nested: `{"pool.depth": 100}` or `{"pool": {"depth": 100}}`."""


def run_job(job: Callable[..., Any], silent: bool, *args: Any, **kwargs: Any) -> BarReporter:
    """Run a job, with its checks, and return the reporter."""
    reporter = BarReporter(silent=silent)
    launch(job, reporter, *args, needs_preflight=True, **kwargs)
    return reporter


def job_result(
    out: Location,
    reporter: BarReporter,
    summarize: Callable[[Run, CollectedAnswer], None] | None = None,
    *,
    verdict: str | None = None,
    passed: bool | None = None,
    shown: Mapping[str, TableRows] | None = None,
) -> JobResult:
    """A job's result: tables and sentences of its reporter, and what its command would print at the end."""
    answer = CollectedAnswer()
    if summarize:
        summarize(Run(url_of(out)), answer)
    figures = {name: TableRows(rows) for name, rows in (reporter.tables | answer.tables).items()}
    notes = (*reporter.sentences, *answer.values.get("notes", []))
    return JobResult(out, Findings(verdict or answer.values.get("verdict"), passed, figures, notes, shown))


def changes_of(
    config: Location | None, settings: Overrides | None, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Overrides of a run's settings, as nested sections: those of the file, the argument and the options."""
    file = {} if config is None else file_settings(Path(url_of(config)))
    return merge(file, merge_nested(settings or {}, options or {}))


def merge_nested(*overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Nested sections of overrides with nested or dotted keys; a later value replaces an earlier one."""
    nested = [_to_nested(key, value) for values in overrides for key, value in values.items()]
    return reduce(merge, nested, dict[str, Any]())


def _to_nested(key: str, value: Any) -> dict[str, Any]:
    section, dot, tail = key.partition(".")
    return {section: _to_nested(tail, value) if dot else value}


def output_folder(name: str, value: Location | None, config: Location | None, preset: str | None) -> str:
    """The output folder, from the argument or the settings file."""
    return read_project(text_of(config), preset, default="").place(name, text_of(value))


def text_of(location: Location | None) -> str | None:
    """A location as text, if there is one."""
    return None if location is None else url_of(location)


def names_of(values: Names) -> list[str]:
    """Values of a repeatable option as texts."""
    return [url_of(values)] if isinstance(values, str | Path | RunView) else [url_of(value) for value in values]
