"""What a report is made from: a run as it stands, which of its stages are complete, and the thresholds of its judge."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from darklode.pipeline.base.artifacts import Manifest, Run, Tables
from darklode.pipeline.base.card import name_of
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.report.funnel import in_data_order
from darklode.schemas.run_inputs import INPUTS
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES

TRAINED = {"adapter", "tenant-adapters", "comparison", "towers"}
"""Kinds of folders with an encoder trained on runs."""


@dataclass(frozen=True)
class ReportSource:
    """A run as it stands.

    Attributes:
        name: the dataset's.
        tables: every table, empty where no complete stage has written it.
        written_tables: the tables that complete stages wrote.
        settings: in force.
        manifests: of the complete stages, by stage.
        mined: whether it is made from a search log.
        adapted: what a query encoder was adapted or distilled from, in words; empty of a run.
        laws: whether it is what `darklode laws` found.
        generated: whether it is queries that `darklode generate` wrote.
        units: units on disk of stages that are not complete, by stage.
        stages: of the job that makes the run, in data order, and whether the settings ask for each.
    """

    name: str
    tables: Tables
    written_tables: frozenset[str]
    settings: Settings
    manifests: dict[str, Manifest]
    mined: bool
    adapted: str
    laws: bool
    generated: bool
    units: dict[str, int]
    stages: Mapping[str, bool]


@contextmanager
def open_source(run: Run, settings: Settings, stages: Mapping[str, bool]) -> Iterator[ReportSource]:
    """Open a run for a report.

    Args:
        run: a run; it need not be complete.
        settings: the run's settings.
        stages: as in `ReportSource`.
    """
    manifests = run.manifests()
    written_tables = frozenset(table for manifest in manifests.values() for table in manifest.outputs)
    inputs = run.store.read_object(INPUTS)
    kind, encoder = inputs.get("kind"), inputs.get("encoder")
    mined = "impressions" in written_tables or kind == "mined"
    adapted = f"adapted from {encoder} by {settings.adapt.method}" if kind in TRAINED else ""
    if "distillation_trials" in written_tables:
        adapted = f"distilled from {encoder}"
    units = {
        name: sum(not file_name.endswith(".state") for file_name in run.store.sizes(f"progress/{name}"))
        for name in run.store.folders("progress")
    }
    with all_tables(run).open_local() as tables:
        yield ReportSource(
            name_of(run, settings),
            tables,
            written_tables,
            settings,
            manifests,
            mined,
            adapted,
            kind == "laws",
            kind == "generated",
            {name: count for name, count in units.items() if count and name not in manifests},
            stages,
        )


COMPLETE = "complete"
MISSING = "not complete"
OLDER = "made from tables that have changed since"


def valid_stages(source: ReportSource) -> dict[str, str]:
    """The stages that belong to the run, in data order, each with its state."""
    enabled_stages = {stage for stage, asked_for in source.stages.items() if asked_for}
    return {
        stage: _state(source, stage)
        for stage in in_data_order({*source.manifests, *enabled_stages}, list(source.stages))
    }


def incomplete(source: ReportSource) -> dict[str, str]:
    """The stages that are not complete, or whose results are not of the tables that stand now."""
    return {stage: state for stage, state in valid_stages(source).items() if state != COMPLETE}


def _state(source: ReportSource, stage: str) -> str:
    manifest = source.manifests.get(stage)
    if manifest is None:
        units = source.units.get(stage, 0)
        return f"{MISSING}; units of its work on disk: {units:,}" if units else MISSING
    return COMPLETE if _has_valid_inputs(source, manifest) else OLDER


def _has_valid_inputs(source: ReportSource, manifest: Manifest) -> bool:
    read = {name: fingerprint for name, fingerprint in manifest.inputs.items() if name in TABLES}
    return all(
        name in source.written_tables and fingerprint == source.tables.content(name)
        for name, fingerprint in read.items()
    )


FITTED = "SELECT tenant, fitted_threshold FROM calibration WHERE fitted_threshold IS NOT NULL ORDER BY tenant"


def thresholds(source: ReportSource) -> pa.Table:
    """Tenant and threshold: a row for each tenant where it was fitted, else one row whose tenant is null."""
    judge = source.settings.judge
    if judge.threshold == "fitted" and not source.mined:
        return source.tables.sql(FITTED).rename_columns(["tenant", "threshold"])
    return pa.table({"tenant": pa.array([None], pa.string()), "threshold": [float(judge.cut)]})
