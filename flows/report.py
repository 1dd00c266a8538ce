"""The report of a folder: `report.html`, with the sections of the job that made it."""

from darklode.flows.jobs.job import Job
from darklode.flows.runs import read_inputs, read_settings
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError


def write_report(run: Run, job: Job) -> str:
    """Write the report of a folder, complete or not; returns its path.

    Raises:
        ArtifactError: the job's folders have no report.
    """
    from darklode.pipeline.report.page import REPORT_FILE, filled_sections, page
    from darklode.pipeline.report.source import open_source

    inputs, settings = read_inputs(run), read_settings(run)
    if not job.sections:
        raise ArtifactError(f"{run.store.url} holds {inputs.description}, which has no report")
    with open_source(run, settings, job.stages(run, inputs, settings)) as source:
        run.store.write(REPORT_FILE, page(source, list(filled_sections(source, job.sections))))
    return f"{run.store.url}/{REPORT_FILE}"
