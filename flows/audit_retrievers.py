"""audit-retrievers: measure the retrievers of a finished run again, with other settings or after other labels."""

from typing import Any

from prefect import flow

from flows.build_benchmark import audit_step, finish, record, recorded
from flows.config import merge, resolve
from flows.steps import run_step
from pipeline.artifacts import Run


@flow(name="audit-retrievers", persist_result=False)
def audit_retrievers(out: str, settings: dict[str, Any] | None = None) -> None:
    """Redo the audit of a run and its card.

    Args:
        out: the run's folder or s3:// prefix.
        settings: what differs from the run's own settings, in the sections audit and seed.
    """
    run = Run(out)
    with run.lock():
        docs, queries, before = recorded(run)
        chosen = resolve(merge(before.model_dump(mode="json"), settings or {}))
        run_step(run, audit_step(chosen))
        record(run, docs, queries, chosen)
        finish(run, chosen)
