"""Data source of a report: a run's tables, settings, manifests and stage states."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from darklode.pipeline.base.artifacts import Manifest, Run, Tables
from darklode.pipeline.base.card import name_of
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.report.funnel import in_data_order
from darklode.pipeline.validate.review.journal import ANSWERS_FOLDER
from darklode.schemas.folder_kinds import ENCODER_KINDS, INPUTS
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES


@dataclass(frozen=True)
class ReportSource:
    """A run, possibly incomplete.

    Attributes:
        name: name of the dataset.
        tables: all tables; empty if no complete stage has written them.
        written_tables: names of the tables written by complete stages.
        settings: the run's settings.
        manifests: manifests of the complete stages, by stage.
        mined: whether it was mined from a search log.
        adapted: description of an adapted or distilled encoder; empty for other folders.
        laws: whether it is an output of `darklode laws`.
        generated: whether it is an output of `darklode generate`.
        n_answers: number of answers that reviewers have given.
        units: number of finished work units of incomplete stages, by stage.
        stages: stages of the job in data order, and whether the settings enable them.
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
    n_answers: int
    units: dict[str, int]
    stages: Mapping[str, bool]


@contextmanager
def open_source(run: Run, settings: Settings, stages: Mapping[str, bool]) -> Iterator[ReportSource]:
    """Open a run, possibly incomplete, for a report; `stages` is as in `ReportSource`."""
    manifests = run.manifests()
    written_tables = frozenset(table for manifest in manifests.values() for table in manifest.outputs)
    inputs = run.store.read_object(INPUTS)
    kind, encoder = inputs.get("kind"), inputs.get("encoder")
    mined = "impressions" in written_tables or kind == "mined"
    adapted = f"adapted from {encoder} by {settings.adapt.method}" if kind in ENCODER_KINDS else ""
    if kind == "model-swap":
        adapted = f"mapped onto the index of {encoder}"
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
            len(run.store.sizes(ANSWERS_FOLDER)),
            {name: count for name, count in units.items() if count and name not in manifests},
            stages,
        )


# States of a stage. An outdated stage is complete, but a table that it read has been written again since.
STATE_COMPLETE = "complete"
STATE_INCOMPLETE = "incomplete"
STATE_OUTDATED = "outdated: its input tables have changed"


def valid_stages(source: ReportSource) -> dict[str, str]:
    """States of the run's stages, in data order."""
    enabled_stages = {stage for stage, is_enabled in source.stages.items() if is_enabled}
    return {
        stage: _state(source, stage)
        for stage in in_data_order({*source.manifests, *enabled_stages}, list(source.stages))
    }


def incomplete(source: ReportSource) -> dict[str, str]:
    """States of incomplete and outdated stages."""
    return {stage: state for stage, state in valid_stages(source).items() if state != STATE_COMPLETE}


def outdated_by_other_jobs(source: ReportSource) -> dict[str, str]:
    """States of incomplete and outdated stages of other jobs, such as `evaluate`: this job does not run them again."""
    return {stage: state for stage, state in incomplete(source).items() if stage not in source.stages}


def _state(source: ReportSource, stage: str) -> str:
    manifest = source.manifests.get(stage)
    if manifest is None:
        units = source.units.get(stage, 0)
        return f"{STATE_INCOMPLETE}; {units:,} work units done" if units else STATE_INCOMPLETE
    if manifest.is_unfinished:
        return STATE_INCOMPLETE
    return STATE_COMPLETE if _has_valid_inputs(source, manifest) else STATE_OUTDATED


def _has_valid_inputs(source: ReportSource, manifest: Manifest) -> bool:
    read = {name: fingerprint for name, fingerprint in manifest.inputs.items() if name in TABLES}
    return all(
        name in source.written_tables and fingerprint == source.tables.content(name)
        for name, fingerprint in read.items()
    )


FITTED_THRESHOLDS_SQL = (
    "SELECT tenant, fitted_threshold FROM calibration WHERE fitted_threshold IS NOT NULL ORDER BY tenant"
)


def thresholds(source: ReportSource) -> pa.Table:
    """Tenant and threshold: a row per tenant if it was fitted, otherwise one row with a null tenant."""
    judge = source.settings.judge
    if judge.threshold == "fitted" and not source.mined:
        return source.tables.sql(FITTED_THRESHOLDS_SQL).rename_columns(["tenant", "threshold"])
    return pa.table({"tenant": pa.array([None], pa.string()), "threshold": [float(judge.cut)]})
