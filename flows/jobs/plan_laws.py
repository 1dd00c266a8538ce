"""What to do next by the laws of a folder and the costs of its runs, and which queries to label."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow.csv as pacsv

from darklode.flows.jobs.fit_laws import open_grid, seed_of
from darklode.flows.runs import LAWS, SETTINGS, read_inputs, read_notes
from darklode.flows.stage_runner import run_step
from darklode.pipeline.base.artifacts import Run, Step, call, key_of
from darklode.pipeline.base.duckdb_views import all_tables, views_sql
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.ingest.queries import INGEST_QUERIES
from darklode.pipeline.judge.stage import JUDGE
from darklode.pipeline.laws.costs import JudgedRun, ModelCost
from darklode.pipeline.laws.fit_stage import FIT, write_law_fits
from darklode.pipeline.laws.label_plan import PlanRequest
from darklode.pipeline.laws.next_queries import READS
from darklode.pipeline.laws.page import PAGE, page
from darklode.pipeline.laws.plan_stage import PLAN, PlanInputs, law_plan
from darklode.pipeline.laws.points import POINTS
from darklode.pipeline.towers.queries import read_files
from darklode.pipeline.train.data.pairs import PAIRS
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.validate.review.journal import FOLDER as JOURNAL
from darklode.schemas.law_tables import NEXT_QUERIES
from darklode.schemas.settings import Settings

BATCH = "next_queries.csv"


def plan_laws(folder: str, request: PlanRequest, *, batch: int | None = None, queries: Sequence[str] = ()) -> Run:
    """Plan by each law of a folder; a price that is not said is that of the runs.

    Args:
        folder: of `darklode laws run` or `fit`; takes the tables of the plan, and `next_queries.csv`.
        request: budget, target and prices.
        batch: queries to label next; None: as many as the plan says.
        queries: files of queries to choose from, as `build` reads them, besides what the runs know.

    Returns:
        The folder.

    Raises:
        ArtifactError: the folder holds no points.
    """
    from darklode.flows.config import recorded_settings

    run = open_grid(folder)
    with run.lock():
        settings = recorded_settings(run.store.read(SETTINGS) or b"{}")
        inputs, seed = _plan_inputs(run, settings), seed_of(run)
        for step in steps(inputs, request, batch, list(queries), settings, seed):
            run_step(run, step)
        run.store.write("views.sql", views_sql(run).encode())
        run.store.write(PAGE, page(run))
        run.store.write(BATCH, _csv(run))
    return run


def steps(
    inputs: PlanInputs, request: PlanRequest, batch: int | None, files: list[str], settings: Settings, seed: int
) -> list[Step]:  # fmt: skip
    """The stages, in data order."""
    reading = settings.ingest.model_copy(update={"tenant": inputs.tenant}).but("documents")
    return [
        Step(
            INGEST_QUERIES,
            lambda: call(read_files, reading),
            lambda: {f"the file {path}": source_fingerprint(path) for path in files},
            source=files,
        ),
        Step(FIT, call(write_law_fits, seed=seed)),
        Step(
            PLAN,
            call(law_plan, inputs, request, batch=batch, seed=seed),
            lambda: _contents(inputs),
            untracked=("inputs",),
        ),
    ]


def _plan_inputs(run: Run, settings: Settings) -> PlanInputs:
    """The runs that the points were trained on; of a file of points there are none."""
    pairs, grid = run.manifest(PAIRS), run.manifest(POINTS)
    if pairs is None or grid is None:
        return PlanInputs(settings.ingest.tenant)
    judged_runs = [Run(url) for url in read_notes(run)[LAWS]]
    made = [read_inputs(judged_run) for judged_run in judged_runs]
    sources = [
        TrainingSource(judged_run, number, run_inputs.is_mined, run_inputs.settings.mining.text_characters)
        for number, (judged_run, run_inputs) in enumerate(zip(judged_runs, made, strict=True))
    ]
    judged = [
        JudgedRun(judged_run, run_inputs.settings.judge.prices())
        for judged_run, run_inputs in zip(judged_runs, made, strict=True)
        if judged_run.manifest(JUDGE)
    ]
    models = [ModelCost(**facts) for facts in grid.facts.get("models", [])]
    return PlanInputs(pairs.facts["tenant"], sources, judged, models)


def _contents(inputs: PlanInputs) -> dict[str, str]:
    """What identifies the runs, their journals, and what the grid measured of its encoders."""
    runs = {f"the run {source.run.store.url}": source.content() for source in inputs.sources}
    for source in inputs.sources:
        tables = all_tables(source.run)
        runs[f"what {source.run.store.url} knows besides"] = key_of([tables.content(name) for name in READS])
    journals = {
        f"the review of {source.run.store.url}": key_of(sorted(source.run.store.sizes(JOURNAL)))
        for source in inputs.judged
    }
    return runs | journals | {"the encoders": key_of([asdict(source) for source in inputs.models])}


def _csv(run: Run) -> bytes:
    """The batch, as `darklode build --queries` reads it."""
    rows = run.tables(NEXT_QUERIES.name).read(NEXT_QUERIES.name).select(["query_id", "query", "tenant"])
    file = io.BytesIO()
    pacsv.write_csv(rows, file)
    return file.getvalue()


def costs_told(run: Run) -> dict[str, Any]:
    """What labels took, by item."""
    rows = run.tables("law_costs").read("law_costs").to_pylist()
    return {row["item"]: row["value"] for row in rows}
