"""The job of a folder: its `inputs.json` names the kind, and each kind has one job with its steps and sections."""

from importlib import import_module

from darklode.flows.jobs.job import Job
from darklode.flows.runs import RunRecord, read_inputs, read_settings
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.base.errors import ArtifactError

# Modules by name, imported by `job_of_kind`: a command imports the job that it needs and no other.
JOB_MODULES = {
    "benchmark": "build_benchmark",
    "mined": "mine_logs",
    "adapter": "adapt_encoder",
    "model-swap": "swap_model",
    "tenant-adapters": "adapt_tenants",
    "comparison": "compare_adapters",
    "towers": "train_towers",
    "reranker": "train_reranker",
    "distilled-judge": "distil_judge",
    "index": "build_index",
    "generated": "generate_queries",
    "laws": "run_laws",
}


def job_of_kind(kind: str) -> Job:
    """The job with the steps and report sections of a kind of folder."""
    job: Job = import_module(f"darklode.flows.jobs.{JOB_MODULES[kind]}").JOB
    return job


def steps_of(record: RunRecord) -> list[Step]:
    """The steps of a run in data order.

    Raises:
        ArtifactError: the job's steps cannot be planned from the folder alone.
    """
    inputs = record.inputs
    job = job_of_kind(inputs.kind)
    if job.steps is None or not job.can_plan:
        raise ArtifactError(f"{record.run.store.url} holds {inputs.description} (`{inputs.command}`), not a run")
    return job.steps(record.run, inputs, record.settings)


def stages_of(run: Run) -> set[str]:
    """Names of the enabled stages of a folder.

    Raises:
        ArtifactError: no Darklode command made the folder.
    """
    inputs = read_inputs(run)
    stages = job_of_kind(inputs.kind).stages(run, inputs, read_settings(run))
    return {name for name, enabled in stages.items() if enabled}
