"""audit-retrievers: audit the retrievers of a finished benchmark again, with other settings or other labels."""

from typing import Any

from darklode.flows.jobs.build_benchmark import steps
from darklode.flows.jobs.job import Job
from darklode.flows.jobs.validate_benchmark import corrected_recalls
from darklode.flows.paths import FlowPath
from darklode.flows.reviews import is_reviewed, reviews_step
from darklode.flows.runs import read_benchmark, write_run
from darklode.flows.stage_runner import finish, run_step
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.audit import AUDIT_STAGE


def audit_retrievers(out: FlowPath, settings: dict[str, Any] | None = None) -> None:
    """Audit the retrievers of a run, and update its card and report.

    Args:
        out: the run's folder or s3:// prefix.
        settings: overrides of the run's settings, in the sections evaluate and seed.
    """
    run = Run(out)
    with run.lock():
        record, inputs = read_benchmark(run)
        resolved = record.with_overrides(settings or {})
        build = steps(inputs.docs, inputs.queries, resolved)
        for step in build:
            if step.stage is AUDIT_STAGE:
                run_step(run, step)
        if is_reviewed(run):
            run_step(run, reviews_step(run))
            run_step(run, corrected_recalls(resolved))
        write_run(run, inputs, resolved)
        finish(run)


JOB = Job("audit-retrievers", audit_retrievers)
