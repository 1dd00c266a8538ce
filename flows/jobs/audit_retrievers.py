"""audit-retrievers: measure the retrievers of a finished run again, with other settings or after other labels."""

from typing import Any

from darklode.flows.jobs.build_benchmark import steps
from darklode.flows.paths import Place
from darklode.flows.runs import benchmark, record
from darklode.flows.stage_runner import finish, run_step
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.audit import AUDIT


def audit_retrievers(out: Place, settings: dict[str, Any] | None = None) -> None:
    """Redo the audit of a run and its card.

    Args:
        out: the run's folder or s3:// prefix.
        settings: what differs from the run's own settings, in the sections audit and seed.
    """
    run = Run(out)
    with run.lock():
        made = benchmark(run)
        chosen = made.with_overrides(settings or {})
        job = steps(made.inputs["docs"], made.inputs["queries"], chosen)
        for step in job:
            if step.stage is AUDIT:
                run_step(run, step)
        record(run, made.inputs, chosen)
        finish(run, chosen, job)
