"""fit-laws: scaling laws from points of a file, or of a folder of `darklode laws run`."""

from __future__ import annotations

from darklode.flows.jobs.job import Job
from darklode.flows.runs import SETTINGS, output_run, read_settings, write_inputs
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.errors import ArtifactError, CommandLineError
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.laws.fit_stage import FIT_STAGE, write_law_fits
from darklode.pipeline.laws.page import PAGE, page
from darklode.pipeline.laws.points import POINTS_STAGE, law_points
from darklode.schemas.paths import to_absolute
from darklode.schemas.run_inputs import LawsInputs

POINT_FILE_SUFFIXES = (".csv", ".parquet")


def fit_laws(source: str, out: str | None = None) -> Run:
    """Fit a law to each measure and source of the points.

    Args:
        source: CSV or Parquet file of points, or a folder of `darklode laws run`.
        out: folder of tables and page; None: that folder.

    Returns:
        The folder.

    Raises:
        CommandLineError: a file needs `out`.
        ArtifactError: `source` has no points, or `out` holds something else.
        InputError: a row of the file is invalid.
    """
    file = to_absolute(source) if source.endswith(POINT_FILE_SUFFIXES) else None
    if file and out is None:
        raise CommandLineError("laws of a file need --out FOLDER")
    run = output_run(out or source, LawsInputs) if file else open_grid(source)
    with run.lock():
        if file:
            write_inputs(run, LawsInputs(points=file))
        for step in steps(file, seed_of(run)):
            run_step(run, step)
        publish(run, page(run), PAGE)
    return run


def steps(file: str | None, seed: int) -> list[Step]:
    """The steps in data order; points are read only from a file."""
    fit = Step(FIT_STAGE, call(write_law_fits, seed=seed))
    if file is None:
        return [fit]
    return [Step(POINTS_STAGE, call(law_points), lambda: {"the file": source_fingerprint(file)}, source=file), fit]


def seed_of(run: Run) -> int:
    """Seed of the resamples: the grid's, so that fit and plan give equal verdicts; 0 for points of a file."""
    return read_settings(run).seed if run.store.size(SETTINGS) is not None else 0


def open_grid(folder: str) -> Run:
    """A folder with points.

    Raises:
        ArtifactError: it has none.
    """
    run = Run(folder)
    if run.manifest(POINTS_STAGE) is None:
        raise ArtifactError(f"{run.store.url} has no points of `darklode laws run`, and is no CSV or Parquet file")
    return run


JOB = Job("fit-laws", fit_laws, LawsInputs)
