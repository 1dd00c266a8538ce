"""What to do next by the laws of a folder and the costs of its runs, and which queries to label."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow.csv as pacsv

from darklode.flows.fit_laws import opened, seed_of
from darklode.flows.runs import LAWS, SETTINGS, noted, recorded
from darklode.flows.steps import run_step
from darklode.pipeline.base.artifacts import Run, Step, call, key_of
from darklode.pipeline.base.views import all_tables, views_sql
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.ingest.queries import INGEST_QUERIES
from darklode.pipeline.judge.stage import JUDGE
from darklode.pipeline.laws.batch import READS
from darklode.pipeline.laws.costs import Judged, Model
from darklode.pipeline.laws.fit import FIT, laws
from darklode.pipeline.laws.page import PAGE, page
from darklode.pipeline.laws.plan import Wanted
from darklode.pipeline.laws.planning import PLAN, Known, law_plan
from darklode.pipeline.laws.points import POINTS
from darklode.pipeline.towers.queries import read_files
from darklode.pipeline.train.pairs import PAIRS
from darklode.pipeline.train.sources import Source
from darklode.pipeline.validate.review.journal import FOLDER as JOURNAL
from darklode.schemas.law_tables import NEXT_QUERIES
from darklode.schemas.settings import Settings

BATCH = "next_queries.csv"


def plan_laws(folder: str, wanted: Wanted, *, batch: int | None = None, queries: Sequence[str] = ()) -> Run:
    """Plan by each law of a folder; a price that is not said is that of the runs.

    Args:
        folder: of `darklode laws run` or `fit`; takes the tables of the plan, and `next_queries.csv`.
        wanted: budget, target and prices.
        batch: queries to label next; None: as many as the plan says.
        queries: files of queries to choose from, as `build` reads them, besides what the runs know.

    Returns:
        The folder.

    Raises:
        ArtifactError: the folder holds no points.
    """
    from darklode.flows.config import recorded_settings

    run = opened(folder)
    with run.lock():
        settings = recorded_settings(run.store.read(SETTINGS) or b"{}")
        known, seed = _known(run, settings), seed_of(run)
        for step in steps(known, wanted, batch, list(queries), settings, seed):
            run_step(run, step)
        run.store.write("views.sql", views_sql(run).encode())
        run.store.write(PAGE, page(run))
        run.store.write(BATCH, _csv(run))
    return run


def steps(
    known: Known, wanted: Wanted, batch: int | None, files: list[str], settings: Settings, seed: int
) -> list[Step]:  # fmt: skip
    """The stages, in data order."""
    reading = settings.ingest.model_copy(update={"tenant": known.tenant}).but("documents")
    return [
        Step(
            INGEST_QUERIES,
            lambda: call(read_files, reading),
            lambda: {f"the file {path}": source_fingerprint(path) for path in files},
            source=files,
        ),
        Step(FIT, call(laws, seed=seed)),
        Step(
            PLAN,
            call(law_plan, known, wanted, batch=batch, seed=seed),
            lambda: _contents(known),
            unkeyed=("known",),
        ),
    ]


def _known(run: Run, settings: Settings) -> Known:
    """The runs that the points were trained on; of a file of points there are none."""
    pairs, grid = run.manifest(PAIRS), run.manifest(POINTS)
    if pairs is None or grid is None:
        return Known(settings.ingest.tenant)
    found = [Run(url) for url in noted(run)[LAWS]]
    made = [recorded(one) for one in found]
    sources = [
        Source(one, number, of.mined, of.settings.mining.text_characters)
        for number, (one, of) in enumerate(zip(found, made, strict=True))
    ]
    judged = [
        Judged(one, of.settings.judge.prices()) for one, of in zip(found, made, strict=True) if one.manifest(JUDGE)
    ]
    models = [Model(**facts) for facts in grid.facts.get("models", [])]
    return Known(pairs.facts["tenant"], sources, judged, models)


def _contents(known: Known) -> dict[str, str]:
    """What identifies the runs, their journals, and what the grid measured of its encoders."""
    runs = {f"the run {one.run.store.url}": one.content() for one in known.sources}
    for one in known.sources:
        tables = all_tables(one.run)
        runs[f"what {one.run.store.url} knows besides"] = key_of([tables.content(name) for name in READS])
    journals = {
        f"the review of {one.run.store.url}": key_of(sorted(one.run.store.sizes(JOURNAL))) for one in known.judged
    }
    return runs | journals | {"the encoders": key_of([asdict(one) for one in known.models])}


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
