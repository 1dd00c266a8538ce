"""Runs from Python: what the command line does, under the same names.

Nothing here keeps a state: a `RunView` reads its folder whenever it is asked, so it sees what a later build wrote.
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
    """Rows of a table, or of an answer in SQL. Whatever takes Arrow takes them: DuckDB, Polars, `pa.table(rows)`."""

    arrow: pa.Table

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.arrow.__arrow_c_stream__(requested_schema)

    @property
    def columns(self) -> list[str]:
        """The columns' names, in order."""
        return list(self.arrow.column_names)

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a pandas frame.

        Raises:
            MissingPart: pandas is not installed.
        """
        try:
            return self.arrow.to_pandas()
        except ImportError as error:
            raise MissingPart("to_pandas needs pandas: pip install pandas") from error

    def to_polars(self) -> "pl.DataFrame":
        """The rows as a Polars frame.

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
    """A run's folder or `s3://` prefix, to look at. Nothing is written.

    Args:
        url: where it lives.

    Raises:
        ArtifactError: no stage is complete there.
    """

    def __init__(self, url: Location) -> None:
        self._run = existing(str(url))

    def __repr__(self) -> str:
        return f"darklode.open({self.url!r})"

    @property
    def url(self) -> str:
        """Where it lives."""
        return self._run.store.url

    @property
    def tables(self) -> list[str]:
        """Names of the tables that complete stages have written (docs/tables.md has their fields)."""
        return sorted(self._run.parts())

    def table(self, name: str) -> TableRows:
        """A whole table, in the order written.

        Raises:
            ArtifactError: no complete stage has written it.
        """
        return TableRows(self._run.tables(name).read(name))

    def sql(self, select: str) -> TableRows:
        """Answer one SELECT of DuckDB's SQL; every table of the run is a view, and nothing else can be read.

        Raises:
            InputError: DuckDB cannot run it, or it is not one SELECT.
        """
        from darklode.pipeline.base.duckdb_views import query

        return TableRows(query(self._run, select))

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return recorded_settings(self._read("settings.yaml"))

    def status(self) -> TableRows:
        """A row per stage: whether it stands or why the next run would redo it, what it made, and its seconds."""
        from darklode.flows.commands.status import COLUMNS, stage_rows

        schema = [(name, pa.float64() if number else pa.string()) for name, number in COLUMNS.items()]
        return TableRows(pa.Table.from_pylist(stage_rows(self._run), pa.schema(schema)))

    @property
    def card(self) -> str:
        """The dataset card, as Markdown."""
        return self._read("README.md")

    def _read(self, file: str) -> str:
        return (self._run.store.read(file) or b"").decode()


def open(url: Location) -> RunView:
    """Open a finished run, or one that has begun.

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
    """Build a judged benchmark and triplets, as `darklode build` does; run again, it does only what changed.

    Args:
        docs: documents: a folder or file that `darklode build --docs` takes; None: `paths.docs` of `config`.
        queries: the query log, likewise.
        out: the run's folder or `s3://` prefix, likewise.
        preset: where the settings start from.
        config: a YAML file with settings and paths.
        settings: what differs from both, as `{"pool.depth": 100}` or `{"pool": {"depth": 100}}`.
        keep_all_queries: let every query through cleaning.
        human: CSV of human labels to hold the judge against.

    Raises:
        DarklodeError: what the command line would print; the class says what kind of error it is.
    """
    config_file = read_project(_path(config), preset)
    changes = {"clean.keep_all": True} if keep_all_queries else {}
    chosen = _settings(
        config_file.preset, config, settings, changes | ({"judge.human_labels": str(human)} if human else {})
    )
    documents, log, to = (
        _resolve_path(config_file, "docs", docs),
        _resolve_path(config_file, "queries", queries),
        _resolve_path(config_file, "out", out),
    )
    from darklode.flows import preflight
    from darklode.flows.jobs.build_benchmark import build_benchmark

    preflight.run_checks(preflight.of_build(documents, log, to, chosen)).insist()
    launch(build_benchmark, SilentReporter(), documents, log, to, config_file.preset, chosen.model_dump(mode="json"))
    return RunView(to)


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
    """Mine search logs into triplets, as `darklode mine` does; run again, it reads only what is new.

    Args:
        logs: search logs: what `darklode mine --logs` takes; None: `paths.logs` of `config`.
        docs: documents, likewise.
        out: the run's folder or `s3://` prefix; None: `paths.mined` of `config`.
        first: first day to read (`--from`); None: all that the log holds. Days read before stay.
        last: last day to read (`--to`).
        test_from: from this day on the log is test data.
        refresh: learn planner and click model anew.
        accept_days: days that were held back and are right, as 2026-03-11, or TENANT:2026-03-11.
        discard_days: days that are to be left out for good.
        reason: why, for the record.
        preset: where the settings start from.
        config: a YAML file with settings and paths.
        settings: what differs from both, as `{"click.model": "pbm"}` or nested.

    Raises:
        HeldBack: a day of the log waits for a decision; the run is complete without it.
        DarklodeError: what the command line would print; the class says what kind of error it is.
    """
    config_file = read_project(_path(config), preset)
    changes = {"mining.test_from": test_from.isoformat()} if test_from else {}
    chosen = _settings(config_file.preset, config, settings, changes)
    log, documents, to = (
        _resolve_path(config_file, "logs", logs),
        _resolve_path(config_file, "docs", docs),
        _resolve_path(config_file, "mined", out),
    )
    from darklode.flows import preflight
    from darklode.flows.jobs.mine_logs import mine_logs
    from darklode.flows.jobs.night_summary import days

    preflight.run_checks(preflight.of_mine(log, documents, to, chosen, days(first, last))).insist()
    values = chosen.model_dump(mode="json")
    read = {"first": first, "last": last, "refresh": refresh}
    decided = {"accept_days": list(accept_days), "discard_days": list(discard_days), "reason": reason}
    launch(
        mine_logs, SilentReporter(), log, documents, to, **read, **decided, preset=config_file.preset, settings=values
    )
    return RunView(to)


def evaluate(
    out: Location,
    *,
    systems: Sequence[str] = (),
    run_files: Sequence[Location] = (),
    labels: Location | None = None,
    settings: Mapping[str, Any] | None = None,
) -> RunView:
    """Measure systems on a run's test queries, as `darklode evaluate` does.

    Args:
        out: the run's folder or `s3://` prefix.
        systems: retrievers and encoders of the settings; none: those that made the run.
        run_files: TREC runs of other systems.
        labels: people's labels of pairs, for AUC.
        settings: what differs from the run's own settings, as `{"evaluate.n_resamples": 200}` or nested.

    Raises:
        DarklodeError: what the command line would print; the class says what kind of error it is.
    """
    from darklode.flows import preflight
    from darklode.flows.jobs.evaluate_systems import evaluate_systems

    arguments = {"systems": list(systems), "run_files": [str(Path(run_file).resolve()) for run_file in run_files]}
    non_empty: dict[str, Any] = {name: value for name, value in arguments.items() if value}
    if labels is not None:
        non_empty["human_labels"] = str(Path(labels).resolve())
    nested = [_to_nested(key, value) for key, value in {**(settings or {}), "evaluate": non_empty}.items()]
    values = reduce(merge, nested, dict[str, Any]())
    preflight.run_checks(preflight.of_evaluation(str(out), values)).insist()
    launch(evaluate_systems, SilentReporter(), str(out), values)
    return RunView(out)


def _settings(
    preset: str, config: Location | None, overrides: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Settings:
    """Preset, file, what was given and what the options say, each overriding the one before it."""
    nested = [_to_nested(key, value) for key, value in {**(overrides or {}), **options}.items()]
    return load_settings(preset, _path(config), values=reduce(merge, nested, dict[str, Any]()))


def _to_nested(key: str, value: Any) -> dict[str, Any]:
    first, dot, tail = key.partition(".")
    return {first: _to_nested(tail, value) if dot else value}


def _path(location: Location | None) -> Path | None:
    return None if location is None else Path(location)


def _resolve_path(config_file: ConfigFile, name: str, value: Location | None) -> str:
    return config_file.place(name, None if value is None else str(value))
