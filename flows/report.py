"""The report of a folder: `report.html`, with the sections of the job that made it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from darklode.flows.executor import executor
from darklode.flows.jobs.registry import job_of_kind
from darklode.flows.runs import read_inputs, read_settings
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError

if TYPE_CHECKING:
    from darklode.flows.jobs.job import Job
    from darklode.pipeline.report.source import ReportSource


@contextmanager
def report_source(run: Run) -> Iterator[tuple[ReportSource, Job]]:
    """Open what the report of a folder is made from, and the job that made the folder.

    Raises:
        ArtifactError: no Darklode command made the folder, or its kind has no report.
    """
    from darklode.pipeline.report.source import open_source

    inputs, settings = read_inputs(run), read_settings(run)
    job = job_of_kind(inputs.kind)
    if not job.sections:
        raise ArtifactError(f"{run.store.url} holds {inputs.description}, which has no report")
    with open_source(run, settings, job.stages(run, inputs, settings)) as source:
        yield source, job


def write_report(run: Run, *, show_summary: bool = False) -> str:
    """Write the report of a folder, complete or not; returns its path.

    Args:
        run: the folder.
        show_summary: publish the report's summary for operators, too.

    Raises:
        ArtifactError: no Darklode command made the folder, or its kind has no report.
    """
    from darklode.pipeline.report.operator import operator_page
    from darklode.pipeline.report.page import REPORT_FILE, filled_sections, page

    with report_source(run) as (source, job):
        sections = list(filled_sections(source, job.sections))
        run.store.write(REPORT_FILE, page(source, sections))
        if show_summary:
            executor().show(run, lambda: operator_page(run.store.url, source, sections))
    return f"{run.store.url}/{REPORT_FILE}"
