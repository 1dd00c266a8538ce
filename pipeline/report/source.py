"""What a report is made from: a run as it stands, which of its stages are complete, and the thresholds of its judge."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from darklode.pipeline.base.artifacts import Manifest, Run, Tables
from darklode.pipeline.base.card import name_of
from darklode.pipeline.base.views import all_tables
from darklode.pipeline.report.funnel import in_data_order
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES


@dataclass(frozen=True)
class Source:
    """A run as it stands.

    Attributes:
        name: the dataset's.
        tables: every table, empty where no complete stage has written it.
        written: the tables that complete stages wrote.
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
    written: frozenset[str]
    settings: Settings
    manifests: dict[str, Manifest]
    mined: bool
    adapted: str
    laws: bool
    generated: bool
    units: dict[str, int]
    stages: Mapping[str, bool]


@contextmanager
def source(run: Run, settings: Settings, stages: Mapping[str, bool]) -> Iterator[Source]:
    """Open a run for a report.

    Args:
        run: a run; it need not be complete.
        settings: the run's settings.
        stages: as in `Source`.
    """
    manifests = run.manifests()
    written = frozenset(table for manifest in manifests.values() for table in manifest.outputs)
    noted = json.loads(run.store.read("inputs.json") or b"{}")
    mined = "impressions" in written or "logs" in noted
    adapted = f"adapted from {noted['encoder']} by {settings.adapt.method}" if "adapted" in noted else ""
    if "distillation_trials" in written:
        adapted = f"distilled from {noted['encoder']}"
    units = {
        name: sum(not one.endswith(".state") for one in run.store.sizes(f"progress/{name}"))
        for name in run.store.folders("progress")
    }
    with all_tables(run).opened() as tables:
        yield Source(
            name_of(run, settings),
            tables,
            written,
            settings,
            manifests,
            mined,
            adapted,
            "laws" in noted,
            "generated" in noted,
            {name: count for name, count in units.items() if count and name not in manifests},
            stages,
        )


COMPLETE = "complete"
MISSING = "not complete"
OLDER = "made from tables that have changed since"


def standing(source: Source) -> dict[str, str]:
    """The stages that belong to the run, in data order, each with its state."""
    wanted = {stage for stage, asked_for in source.stages.items() if asked_for}
    return {stage: _state(source, stage) for stage in in_data_order({*source.manifests, *wanted}, list(source.stages))}


def incomplete(source: Source) -> dict[str, str]:
    """The stages that are not complete, or whose results are not of the tables that stand now."""
    return {stage: state for stage, state in standing(source).items() if state != COMPLETE}


def _state(source: Source, stage: str) -> str:
    manifest = source.manifests.get(stage)
    if manifest is None:
        units = source.units.get(stage, 0)
        return f"{MISSING}; units of its work on disk: {units:,}" if units else MISSING
    return COMPLETE if _reads_what_stands(source, manifest) else OLDER


def _reads_what_stands(source: Source, manifest: Manifest) -> bool:
    read = {name: seen for name, seen in manifest.inputs.items() if name in TABLES}
    return all(name in source.written and seen == source.tables.content(name) for name, seen in read.items())


FITTED = "SELECT tenant, fitted_threshold FROM calibration WHERE fitted_threshold IS NOT NULL ORDER BY tenant"


def thresholds(source: Source) -> pa.Table:
    """Tenant and threshold: a row for each tenant where it was fitted, else one row whose tenant is null."""
    judge = source.settings.judge
    if judge.threshold == "fitted" and not source.mined:
        return source.tables.sql(FITTED).rename_columns(["tenant", "threshold"])
    return pa.table({"tenant": pa.array([None], pa.string()), "threshold": [float(judge.cut)]})
