"""Which stages make a run hangs on what it is made from."""

from darklode.flows.config import load_settings
from darklode.flows.jobs.registry import steps_of
from darklode.flows.runs import read_run, write_run
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import BenchmarkInputs, MinedInputs


def names(run: Run) -> list[str]:
    return [step.stage.name for step in steps_of(read_run(run))]


def test_a_benchmark_is_built_and_a_log_is_mined(run: Run) -> None:
    write_run(run, BenchmarkInputs(docs="d", queries="q"), load_settings())
    assert names(run)[:2] == ["ingest_documents", "ingest_queries"]
    assert names(run)[-1] == "audit"
    mined = Run(f"{run.store.url}-mined")
    write_run(mined, MinedInputs(docs="d", logs="l"), load_settings())
    assert {"ingest_logs", "associate", "mined_pairs"} <= set(names(mined))
    assert not {"ingest_queries", "pool", "audit"} & set(names(mined))
