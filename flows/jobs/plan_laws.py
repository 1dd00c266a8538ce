"""plan-laws: what more labels would gain and cost by the laws of a folder, and which queries to label next."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow.csv as pacsv

from darklode.flows.jobs.fit_laws import open_grid, seed_of
from darklode.flows.jobs.job import Job
from darklode.flows.runs import read_inputs, read_runs, read_settings
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, call, key_of
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.ingest.queries import INGEST_QUERIES
from darklode.pipeline.judge.stage import JUDGE
from darklode.pipeline.laws.costs import JudgedRun, ModelCost
from darklode.pipeline.laws.fit_stage import FIT_STAGE, write_law_fits
from darklode.pipeline.laws.label_plan import PlanRequest
from darklode.pipeline.laws.next_queries import OPTIONAL_TABLES
from darklode.pipeline.laws.page import PAGE, page
from darklode.pipeline.laws.plan_stage import PLAN_STAGE, PlanInputs, law_plan
from darklode.pipeline.laws.points import POINTS_STAGE
from darklode.pipeline.towers.queries import read_files
from darklode.pipeline.train.data.pairs import PAIRS_STAGE
from darklode.pipeline.validate.review.journal import ANSWERS_FOLDER
from darklode.schemas.law_tables import NEXT_QUERIES
from darklode.schemas.run_inputs import LawsInputs
from darklode.schemas.settings import Settings

NEXT_QUERIES_FILE = "next_queries.csv"


def plan_laws(folder: str, request: PlanRequest, *, batch: int | None = None, queries: Sequence[str] = ()) -> Run:
    """Plan with each law of a folder; prices default to those of the runs.

    Args:
        folder: output of `darklode laws run` or `fit`; receives the tables of the plan and `next_queries.csv`.
        request: budget, target and prices.
        batch: number of queries to label next; None: as planned.
        queries: files of further queries to choose from, in the formats of `build`.

    Returns:
        The folder.

    Raises:
        ArtifactError: the folder has no points.
    """
    run = open_grid(folder)
    with run.lock():
        settings = read_settings(run)
        inputs, seed = _plan_inputs(run, settings), seed_of(run)
        for step in steps(inputs, request, batch, list(queries), settings, seed):
            run_step(run, step)
        publish(run, page(run), PAGE)
        run.store.write(NEXT_QUERIES_FILE, _csv(run))
    return run


def steps(
    inputs: PlanInputs, request: PlanRequest, batch: int | None, files: list[str], settings: Settings, seed: int
) -> list[Step]:  # fmt: skip
    """The steps in data order."""
    reading = settings.ingest.model_copy(update={"tenant": inputs.tenant}).but("documents")
    return [
        Step(
            INGEST_QUERIES,
            lambda: call(read_files, reading),
            lambda: {f"the file {path}": source_fingerprint(path) for path in files},
            source=files,
        ),
        Step(FIT_STAGE, call(write_law_fits, seed=seed)),
        Step(
            PLAN_STAGE,
            call(law_plan, inputs, request, batch=batch, seed=seed),
            lambda: _contents(inputs),
            untracked=("inputs",),
        ),
    ]


def _plan_inputs(run: Run, settings: Settings) -> PlanInputs:
    """The runs that the points were trained on; none if the points are from a file."""
    pairs, grid, inputs = run.manifest(PAIRS_STAGE), run.manifest(POINTS_STAGE), read_inputs(run)
    if pairs is None or grid is None or not isinstance(inputs, LawsInputs):
        return PlanInputs(settings.ingest.tenant)
    records = read_runs(inputs.runs)
    sources = [record.training_source(number) for number, record in enumerate(records)]
    judged = [JudgedRun(record.run, record.settings.judge.prices()) for record in records if record.run.manifest(JUDGE)]
    models = [ModelCost(**facts) for facts in grid.facts.get("models", [])]
    return PlanInputs(pairs.facts["tenant"], sources, judged, models)


def _contents(inputs: PlanInputs) -> dict[str, str]:
    """Fingerprints of the runs, their reviews, and the grid's measurements of its encoders."""
    runs = {f"the run {source.run.store.url}": source.content() for source in inputs.sources}
    for source in inputs.sources:
        tables = all_tables(source.run)
        runs[f"other tables of {source.run.store.url}"] = key_of([tables.content(name) for name in OPTIONAL_TABLES])
    journals = {
        f"the review of {source.run.store.url}": key_of(sorted(source.run.store.sizes(ANSWERS_FOLDER)))
        for source in inputs.judged
    }
    return runs | journals | {"the encoders": key_of([asdict(source) for source in inputs.models])}


def _csv(run: Run) -> bytes:
    """The batch in a format that `darklode build --queries` reads."""
    rows = run.tables(NEXT_QUERIES.name).read(NEXT_QUERIES.name).select(["query_id", "query", "tenant"])
    file = io.BytesIO()
    pacsv.write_csv(rows, file)
    return file.getvalue()


def label_costs(run: Run) -> dict[str, Any]:
    """Cost of the labels, by item."""
    rows = run.tables("law_costs").read("law_costs").to_pylist()
    return {row["item"]: row["value"] for row in rows}


JOB = Job("plan-laws", plan_laws)
