"""Fitting laws to points: of a file, or of a folder of `darklode laws run`."""

from __future__ import annotations

from darklode.flows.runs import LAWS, SETTINGS, note, read_notes
from darklode.flows.stage_runner import run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.duckdb_views import views_sql
from darklode.pipeline.base.errors import ArtifactError, CommandLineError
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.laws.fit_stage import FIT, write_law_fits
from darklode.pipeline.laws.page import PAGE, page
from darklode.pipeline.laws.points import POINTS, law_points
from darklode.schemas.paths import to_absolute

FILES = (".csv", ".parquet")


def fit_laws(source: str, out: str | None = None) -> Run:
    """Look for a law in each measure and source of some points.

    Args:
        source: a CSV or Parquet file of points, or a folder of `darklode laws run`.
        out: where tables and page go; None: to that folder.

    Returns:
        The folder.

    Raises:
        CommandLineError: a file's laws have no folder to go to.
        ArtifactError: the folder holds no points, or something else lies where they are to go.
        InputError: a row of the file cannot be a point.
    """
    of_file = source.endswith(FILES)
    if of_file and out is None:
        raise CommandLineError("say where the laws of a file go: --out FOLDER")
    run = laws_folder(out or source) if of_file else open_grid(source)
    with run.lock():
        if of_file:
            file = to_absolute(source)
            note(run, {LAWS: [file]})
            print_ = source_fingerprint(file)
            run_step(run, Step(POINTS, call(law_points), lambda: {"the file": print_}, source=file))
        run_step(run, Step(FIT, call(write_law_fits, seed=seed_of(run))))
        run.store.write("views.sql", views_sql(run).encode())
        run.store.write(PAGE, page(run))
    return run


def seed_of(run: Run) -> int:
    """Of the resamples: a grid's own, so that its verdicts are the same whoever fits or plans; 0 of a file's points."""
    from darklode.flows.config import recorded_settings

    settings = run.store.read(SETTINGS)
    return 0 if settings is None else recorded_settings(settings).seed


def laws_folder(out: str) -> Run:
    """Where points and laws go.

    Raises:
        ArtifactError: something else lies there.
    """
    run = Run(out)
    if LAWS not in read_notes(run) and run.store.root_names():
        raise ArtifactError(f"{run.store.url} holds something else than laws; choose another --out")
    return run


def open_grid(folder: str) -> Run:
    """A folder that holds points.

    Raises:
        ArtifactError: it holds none.
    """
    run = Run(folder)
    if run.manifest(POINTS) is None:
        raise ArtifactError(f"{run.store.url} holds no points of `darklode laws run`, and is no CSV or Parquet file")
    return run
