"""Each job file declares its job; kinds of folders, report sections and Prefect flows follow from the jobs."""

from importlib import import_module
from pathlib import Path

import pytest
from prefect import Flow

from darklode.flows.config import load_settings
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.jobs.registry import JOB_MODULES, job_of_kind, stages_of, steps_of
from darklode.flows.prefect import orchestration
from darklode.flows.report import write_report
from darklode.flows.runs import read_run, write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.report.page import SECTION_MODULES
from darklode.schemas.run_inputs import (
    AdapterInputs,
    BenchmarkInputs,
    ComparisonInputs,
    DistilledJudgeInputs,
    GeneratedInputs,
    IndexInputs,
    Inputs,
    LawsInputs,
    MinedInputs,
    ModelSwapInputs,
    RerankerInputs,
    TenantAdaptersInputs,
    TowersInputs,
)
from helpers.runs import REPOSITORY

PARTS = {"job", "registry", "train_both_towers", "__init__"}  # train_both_towers is stage 1 of train_towers
FILES = sorted(path.stem for path in (REPOSITORY / "flows" / "jobs").glob("*.py") if path.stem not in PARTS)
COMMANDS_ONLY = {"fit-laws", "plan-laws", "plan-scale"}

FOLDERS: list[tuple[Inputs, str, str]] = [
    (BenchmarkInputs(docs="d", queries="q"), "ingest_documents", "funnel"),
    (MinedInputs(logs="l", docs="d"), "ingest_documents", "funnel"),
    (AdapterInputs(runs=["r"], encoder="e"), "adaptation_pairs", "adapter_verdict"),
    (ModelSwapInputs(runs=["r"], encoder="e", new_encoder="n"), "ingest_queries", "swap_verdict"),
    (TenantAdaptersInputs(runs=["r"], encoder="e"), "adapted_tenants", "adapted_tenants"),
    (ComparisonInputs(runs=["r"], encoder="e"), "adaptation_pairs", "adapt_comparison"),
    (TowersInputs(runs=["r"], encoder="e", stage=1), "adaptation_pairs", "evaluate"),
    (TowersInputs(runs=["r"], encoder="e"), "ingest_queries", "evaluate"),
    (RerankerInputs(runs=["r"], base="b", encoder="e", candidates=5), "adaptation_pairs", "reranker_verdict"),
    (DistilledJudgeInputs(run="r", base="b"), "distilled_pairs", "distilled_predictions"),
    (IndexInputs(source="r", encoder="e", tenant="t"), "indexed_texts", "index_recall"),
    (GeneratedInputs(source="r"), "generation_texts", "generated_queries"),
    (LawsInputs(runs=["r"], encoders=["e"]), "adaptation_pairs", "laws"),
    (LawsInputs(points="p.csv"), "law_points", "laws"),
]


def jobs() -> dict[str, Job]:
    return {name: import_module(f"darklode.flows.jobs.{name}").JOB for name in FILES}


def test_each_file_declares_a_job_of_its_name() -> None:
    assert {name: job.name.replace("-", "_") for name, job in jobs().items()} == {name: name for name in FILES}


def test_each_job_is_a_flow_unless_only_a_command_runs_it() -> None:
    flows = {value.name for value in vars(orchestration).values() if isinstance(value, Flow)}
    assert flows == {job.name for job in jobs().values()} - COMMANDS_ONLY | {"update-index"}


def test_each_kind_has_the_job_with_its_inputs() -> None:
    assert {kind: job_of_kind(kind).inputs and job_of_kind(kind).inputs.kind_name() for kind in JOB_MODULES} == {  # type: ignore[union-attr]
        kind: kind for kind in JOB_MODULES
    }
    assert {inputs.kind for inputs, *_ in FOLDERS} == set(JOB_MODULES)


def test_report_sections_exist() -> None:
    keys = set(SECTION_MODULES)
    assert keys == {key for job in jobs().values() for key in job.sections}
    assert set(RUN_SECTIONS) < keys


def test_exit_codes_name_the_refusals() -> None:
    codes = jobs()["nightly_adapt"].exit_codes
    assert {codes[3], codes[4]} == {"NoLift or DoesNotFit", "HeldBack"}
    assert set(jobs()["build_index"].exit_codes) == {0, 1, 2, 130}


@pytest.mark.parametrize(("inputs", "first", "last"), FOLDERS, ids=lambda value: getattr(value, "kind", ""))
def test_stages_are_known_without_opening_anything(tmp_path: Path, inputs: Inputs, first: str, last: str) -> None:
    run, settings = Run(str(tmp_path / "folder")), load_settings()
    write_run(run, inputs, settings)
    order = list(job_of_kind(inputs.kind).stages(run, inputs, settings))
    assert (order[0], order[-1]) == (first, last)
    assert stages_of(run) <= set(order)
    if inputs.kind == "index":
        with pytest.raises(ArtifactError, match="holds an index, which has no report"):
            write_report(run)
    if inputs.kind == "generated":
        with pytest.raises(ArtifactError, match=r"holds generated queries \(`darklode generate`\), not a run"):
            steps_of(read_run(run))
