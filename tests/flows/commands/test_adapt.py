"""darklode adapt: its verdict on the screen and in the exit code, under Prefect."""

from pathlib import Path

import pytest

from darklode.flows.runs import read_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import AdapterInputs
from helpers.adapted import TENANT, build_to_adapt, model_in
from helpers.commands import DARKLODE, Environment, one_line, run_inside
from helpers.ingesting import write
from helpers.runs import read, written

pytestmark = pytest.mark.server


@pytest.mark.slow
def test_the_base_is_handed_over_with_exit_code_3_and_the_parts_shown(tmp_path: Path, served: Environment) -> None:
    build_to_adapt(tmp_path / "run")
    model = model_in(tmp_path).model
    command = [DARKLODE, "adapt", str(tmp_path / "run"), "--encoder", model, "--out", str(tmp_path / "out")]
    quick = ["--method", "linear", "--set", "adapt.max_steps=50", "--set", "adapt.learning_rates=[0.0003]"]
    tried = run_inside([*command, *quick, "--dry-run"], served)
    assert (tried.code, tried.err) == (0, "")
    assert "15 test queries in 15 clusters decide: a lift of about 0.303 or more" in " ".join(tried.out.split())
    assert "adaptation_trials" not in tried.out
    done = run_inside([*command, *quick], served)
    assert done.code == 3
    assert "is the base itself: " in done.err
    shown = done.out.partition("Gain over the base encoder")[2].split("\n")
    parts = [row.partition(" nDCG@10")[0].strip() for row in shown if " nDCG@10" in row]
    assert parts == sorted(set(parts)), "one row of the adapted encoder per part"
    assert "own positive" in parts
    again = run_inside([*command, *quick], served)
    assert (again.code, "not run yet" in again.out) == (3, False)


@pytest.mark.slow
def test_judgments_brought_afterwards_give_splits_and_labels(tmp_path: Path, served: Environment) -> None:
    run = build_to_adapt(tmp_path / "run")
    queries = [{name: row[name] for name in ("tenant", "query_id", "text")} for row in read(run, "queries")]
    written(run, "raw_queries", queries)
    documents = sorted({str(row["doc_id"]) for row in read(run, "chunks")})
    written(run, "documents", [{"tenant": TENANT, "doc_id": document} for document in documents])
    held_out = [f"test-{n:03}" for n in range(1, 12)]
    rows = [f"{query},{query}-2,2,{TENANT},test\n" for query in held_out]
    qrels = write(tmp_path / "judged.csv", "query_id,doc_id,grade,tenant,split\n" + "".join(rows))
    model, out = model_in(tmp_path).model, tmp_path / "out"
    command = [DARKLODE, "adapt", str(tmp_path / "run"), "--encoder", model, "--out", str(out), "--qrels", str(qrels)]
    command += ["--method", "linear", "--set", "adapt.max_steps=50", "--set", "adapt.learning_rates=[0.0003]"]
    done = run_inside(command, served)
    assert done.code in {0, 3}, done
    assert "adaptation_judgments: not run yet" in done.out
    tested = {row["query_id"] for row in read(Run(str(out)), "adaptation_queries") if row["split"] == "test"}
    assert tested == set(held_out)
    labels = {(row["query_id"], row["text_id"]): row["relevance"] for row in read(Run(str(out)), "adaptation_labels")}
    assert {labels[query, f"{query}#2"] for query in held_out} == {2}
    inputs = read_inputs(Run(str(out)))
    assert isinstance(inputs, AdapterInputs)
    assert inputs.qrels == str(qrels)
    again = run_inside(command, served)
    assert (again.code, "not run yet" in again.out) == (done.code, False)
    one_line(run_inside([*command, "--tenants", "all"], served), "--qrels supports one tenant", code=2)
    several = [*command[:2], str(tmp_path / "run"), *command[2:-6], "--out", str(tmp_path / "other")]
    one_line(run_inside(several, served), "--qrels needs one run, made by `darklode build`")


@pytest.mark.slow
def test_each_tenant_starts_from_the_adapter_given(tmp_path: Path, served: Environment) -> None:
    build_to_adapt(tmp_path / "run")
    run, out = str(tmp_path / "run"), str(tmp_path / "out")
    command = [DARKLODE, "adapt", run, "--encoder", model_in(tmp_path).model, "--out", out, "--method", "linear"]
    done = run_inside([*command, "--tenants", "all", "--warm-start", run], served)
    assert done.code == 3
    assert [str(row["reason"]).partition(";")[0] for row in read(Run(out), "adapted_tenants")] == [
        f"{run} contains no finished adapter"
    ]
