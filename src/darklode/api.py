"""Python API: the functions have the names of the commands.

A `RunView` has no state: it reads its folder on each access, so it sees what a later build wrote.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from darklode.flows.config import ConfigFile, load_settings, read_project, recorded_settings
from darklode.flows.launch import launch
from darklode.flows.prefect.progress import SilentReporter
from darklode.flows.runs import existing
from darklode.pipeline.base.errors import MissingPart
from darklode.schemas.setting_names import merge
from darklode.schemas.settings import Settings

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Location = str | Path
"""A local path, or an `s3://bucket/prefix`."""


@dataclass(frozen=True)
class TableRows:
    """Rows of a table or of an SQL result; DuckDB, Polars and `pa.table(rows)` accept them as Arrow."""

    arrow: pa.Table

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.arrow.__arrow_c_stream__(requested_schema)

    @property
    def columns(self) -> list[str]:
        """Column names, in order."""
        return list(self.arrow.column_names)

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a pandas DataFrame.

        Raises:
            MissingPart: pandas is not installed.
        """
        try:
            return self.arrow.to_pandas()
        except ImportError as error:
            raise MissingPart("to_pandas needs pandas: pip install pandas") from error

    def to_polars(self) -> "pl.DataFrame":
        """The rows as a Polars DataFrame.

        Raises:
            MissingPart: Polars is not installed.
        """
        try:
            import polars as pl
        except ImportError as error:
            raise MissingPart("to_polars needs Polars: pip install polars") from error
        return pl.DataFrame(self.arrow)

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        return list(self.arrow.to_pylist())


class RunView:
    """A read-only view of a run.

    Args:
        url: the run's folder or `s3://` prefix.

    Raises:
        ArtifactError: no stage is complete there.
    """

    def __init__(self, url: Location) -> None:
        self._run = existing(str(url))

    def __repr__(self) -> str:
        return f"darklode.open({self.url!r})"

    @property
    def url(self) -> str:
        """The run's folder or prefix."""
        return self._run.store.url

    @property
    def tables(self) -> list[str]:
        """Names of the tables of complete stages; docs/reference/tables.md lists their columns."""
        return sorted(self._run.parts())

    def table(self, name: str) -> TableRows:
        """A table, in the order written.

        Raises:
            ArtifactError: no complete stage has written it.
        """
        return TableRows(self._run.tables(name).read(name))

    def sql(self, select: str) -> TableRows:
        """The result of one SELECT in DuckDB's SQL; every table of the run is a view, and nothing else is readable.

        Raises:
            InputError: DuckDB cannot run it, or it is not one SELECT.
        """
        from darklode.pipeline.base.duckdb_views import query

        return TableRows(query(self._run, select))

    @property
    def settings(self) -> Settings:
        """The run's settings."""
        return recorded_settings(self._read("settings.yaml"))

    def status(self) -> TableRows:
        """A row per stage: up to date or why it would be redone, its result, and its seconds."""
        from darklode.flows.commands.status import STAGE_COLUMNS, stage_rows

        schema = [(name, pa.float64() if number else pa.string()) for name, number in STAGE_COLUMNS.items()]
        return TableRows(pa.Table.from_pylist(stage_rows(self._run), pa.schema(schema)))

    @property
    def card(self) -> str:
        """The dataset card, as Markdown."""
        return self._read("README.md")

    def _read(self, file: str) -> str:
        return (self._run.store.read(file) or b"").decode()


def open(url: Location) -> RunView:
    """Open a run, complete or not.

    Args:
        url: its folder, or `s3://bucket/prefix`.

    Raises:
        ArtifactError: it holds no run.
    """
    return RunView(url)


def build(  # noqa: PLR0913 (the options of the command)
    docs: Location | None = None,
    queries: Location | None = None,
    out: Location | None = None,
    *,
    preset: str | None = None,
    config: Location | None = None,
    settings: Mapping[str, Any] | None = None,
    keep_all_queries: bool = False,
    human: Location | None = None,
) -> RunView:
    """Build a judged benchmark and triplets, as `darklode build` does; a second call redoes only what changed.

    Args:
        docs: folder or file of documents, as `--docs` takes; None: `paths.docs` of `config`.
        queries: query log; None: `paths.queries` of `config`.
        out: the run's folder or `s3://` prefix; None: `paths.out` of `config`.
        preset: base of the settings.
        config: YAML file with settings and paths.
        settings: overrides of both, as `{"pool.depth": 100}` or `{"pool": {"depth": 100}}`.
        keep_all_queries: keep every query in cleaning.
        human: CSV file of human labels to calibrate the judge.

    Raises:
        DarklodeError: as the command line would print it; subclasses tell kinds of errors apart.
    """
    project = read_project(_path(config), preset)
    changes: dict[str, Any] = {"clean.keep_all": True} if keep_all_queries else {}
    if human:
        changes["judge.human_labels"] = str(human)
    resolved = _settings(project.preset, config, settings, changes)
    documents = _resolve_path(project, "docs", docs)
    log = _resolve_path(project, "queries", queries)
    target = _resolve_path(project, "out", out)
    from darklode.flows import preflight
    from darklode.flows.jobs.build_benchmark import build_benchmark

    preflight.run_checks(preflight.build_checks(documents, log, target, resolved)).raise_errors()
    launch(build_benchmark, SilentReporter(), documents, log, target, project.preset, resolved.model_dump(mode="json"))
    return RunView(target)


def mine(  # noqa: PLR0913 (the options of the command)
    logs: Location | None = None,
    docs: Location | None = None,
    out: Location | None = None,
    *,
    first: date | None = None,
    last: date | None = None,
    test_from: date | None = None,
    refresh: bool = False,
    accept_days: Sequence[str] = (),
    discard_days: Sequence[str] = (),
    reason: str | None = None,
    preset: str | None = None,
    config: Location | None = None,
    settings: Mapping[str, Any] | None = None,
) -> RunView:
    """Mine search logs into triplets, as `darklode mine` does; a second call reads only new days.

    Args:
        logs: search logs, as `--logs` takes; None: `paths.logs` of `config`.
        docs: documents; None: `paths.docs` of `config`.
        out: the run's folder or `s3://` prefix; None: `paths.mined` of `config`.
        first: first day to read (`--from`); None: all days. Days read before are kept.
        last: last day to read (`--to`).
        test_from: first day of the test data.
        refresh: fit term weights and click model again.
        accept_days: days held back to include, as 2026-03-11 or TENANT:2026-03-11.
        discard_days: days to leave out for good.
        reason: reason for these decisions, for the record.
        preset: base of the settings.
        config: YAML file with settings and paths.
        settings: overrides of both, as `{"click.model": "pbm"}` or nested.

    Raises:
        HeldBack: a day of the log needs a decision; the run is complete without it.
        DarklodeError: as the command line would print it; subclasses tell kinds of errors apart.
    """
    project = read_project(_path(config), preset)
    changes = {"mining.test_from": test_from.isoformat()} if test_from else {}
    resolved = _settings(project.preset, config, settings, changes)
    log = _resolve_path(project, "logs", logs)
    documents = _resolve_path(project, "docs", docs)
    target = _resolve_path(project, "mined", out)
    from darklode.flows import preflight
    from darklode.flows.jobs.mine_logs import mine_logs
    from darklode.flows.night_summary import days

    preflight.run_checks(preflight.mining_checks(log, documents, target, resolved, days(first, last))).raise_errors()
    values = resolved.model_dump(mode="json")
    read = {"first": first, "last": last, "refresh": refresh}
    decided = {"accept_days": list(accept_days), "discard_days": list(discard_days), "reason": reason}
    launch(
        mine_logs, SilentReporter(), log, documents, target, **read, **decided, preset=project.preset, settings=values
    )
    return RunView(target)


def evaluate(
    out: Location,
    *,
    systems: Sequence[str] = (),
    run_files: Sequence[Location] = (),
    labels: Location | None = None,
    settings: Mapping[str, Any] | None = None,
) -> RunView:
    """Evaluate systems on a run's test queries, as `darklode evaluate` does.

    Args:
        out: the run's folder or `s3://` prefix.
        systems: retrievers and encoders of the settings; empty: those of the run.
        run_files: TREC run files of other systems.
        labels: human labels of pairs, for AUC.
        settings: overrides of the run's settings, as `{"evaluate.n_resamples": 200}` or nested.

    Raises:
        DarklodeError: as the command line would print it; subclasses tell kinds of errors apart.
    """
    from darklode.flows import preflight
    from darklode.flows.jobs.evaluate_systems import evaluate_systems

    arguments = {"systems": list(systems), "run_files": [str(Path(run_file).resolve()) for run_file in run_files]}
    non_empty: dict[str, Any] = {name: value for name, value in arguments.items() if value}
    if labels is not None:
        non_empty["human_labels"] = str(Path(labels).resolve())
    values = _merge_nested(settings or {}, {"evaluate": non_empty})
    preflight.run_checks(preflight.evaluation_checks(str(out), values)).raise_errors()
    launch(evaluate_systems, SilentReporter(), str(out), values)
    return RunView(out)


def _settings(
    preset: str, config: Location | None, overrides: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Settings:
    """Settings of preset, file, overrides and options, each overriding the one before it."""
    return load_settings(preset, _path(config), values=_merge_nested(overrides or {}, options))


def _merge_nested(*overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Nested sections of overrides with nested or dotted keys; a later value replaces an earlier one."""
    nested = [_to_nested(key, value) for values in overrides for key, value in values.items()]
    return reduce(merge, nested, dict[str, Any]())


def _to_nested(key: str, value: Any) -> dict[str, Any]:
    first, dot, tail = key.partition(".")
    return {first: _to_nested(tail, value) if dot else value}


def _path(location: Location | None) -> Path | None:
    return None if location is None else Path(location)


def _resolve_path(project: ConfigFile, name: str, value: Location | None) -> str:
    return project.place(name, None if value is None else str(value))
