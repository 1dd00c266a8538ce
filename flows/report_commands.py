"""darklode report: a run as one page."""

import yaml

from flows.config import resolve
from flows.console import console, printable
from flows.options import RunArgument
from flows.runs import no_run
from pipeline.artifacts import Run
from schemas.settings import Settings


def report(run: RunArgument) -> None:
    """Write RUN/report.html: a run as one page, complete or not."""
    from pipeline.report import FILE, page, source  # noqa: PLC0415 (heavy)

    made = Run(run)
    with source(made, _settings(made)) as given:
        made.store.write(FILE, page(given))
    console.print(f"{printable(made.store.url)}/{FILE}", soft_wrap=True)


def _settings(run: Run) -> Settings:
    """The settings that the run was last made with.

    Raises:
        ArtifactError: the folder holds no run.
    """
    text = run.store.read("settings.yaml")
    if text is None:
        raise no_run(run)
    return resolve(yaml.safe_load(text))
