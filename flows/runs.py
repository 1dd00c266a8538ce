"""Runs that a command is given, and what it says where there is none."""

from pipeline.artifacts import Run
from pipeline.errors import ArtifactError


def existing(url: str) -> Run:
    """The run at a folder or prefix.

    Raises:
        ArtifactError: no stage is complete there.
    """
    run = Run(url)
    if not run.manifests():
        raise no_run(run)
    return run


def no_run(run: Run) -> ArtifactError:
    """What to raise where a folder holds no run."""
    return ArtifactError(f"{run.store.url} holds no run; make one with `darklode build --out {run.store.url} …`")
