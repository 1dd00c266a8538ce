"""probe-judge: judge altered pairs of a finished benchmark, to see how far its judge can be trusted."""

from typing import Any

from darklode.flows.jobs.build_benchmark import probe_step
from darklode.flows.jobs.job import Job
from darklode.flows.paths import FlowPath
from darklode.flows.runs import read_benchmark, write_run
from darklode.flows.stage_runner import finish, run_step
from darklode.pipeline.base.artifacts import Run


def probe_judge(out: FlowPath, settings: dict[str, Any] | None = None) -> None:
    """Probe the judge of a run, and update its card and report.

    Args:
        out: the run's folder or s3:// prefix.
        settings: overrides of the run's settings, in the sections judge and seed.
    """
    run = Run(out)
    with run.lock():
        record, inputs = read_benchmark(run)
        resolved = record.with_overrides(settings or {})
        run_step(run, probe_step(resolved, inputs.qrels))
        write_run(run, inputs, resolved)
        finish(run)


JOB = Job("probe-judge", probe_judge)
