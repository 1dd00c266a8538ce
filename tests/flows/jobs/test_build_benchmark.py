"""The same inputs give the same files, byte for byte; what changed is redone, and nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.csv as pc
import pytest

from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Run
from helpers.commands import STAGES, SampleRun, build_without_prefect, tables_of
from helpers.runs import PYTHONPATH, SAMPLE

SETTINGS = load_settings(assignments=["evaluate.n_resamples=100"])
BUILD = """
import sys
from darklode.flows.config import load_settings
from helpers.commands import build_without_prefect
build_without_prefect(sys.argv[1], sys.argv[2], sys.argv[2], load_settings())
"""
EDITED = "documents/tern/agents/macros.md"


def without_funnel(tables: dict[str, bytes]) -> dict[str, bytes]:
    """The tables of the stages; the funnel is written by the flow around them."""
    return {name: data for name, data in tables.items() if not name.startswith("funnel/")}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path_factory.mktemp("inputs") / "sample"))


@pytest.fixture(scope="module")
def built_once(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the inputs as they are at first."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    assert build_without_prefect(folder, inputs, inputs, SETTINGS) == STAGES
    return folder


@pytest.mark.slow
@pytest.mark.server
def test_a_build_of_another_process_with_one_thread_is_the_same(sample_run: SampleRun, tmp_path: Path) -> None:
    other = {"PYTHONHASHSEED": "4242", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-c", BUILD, str(tmp_path / "again"), str(SAMPLE)]
    subprocess.run(command, env=os.environ | other, check=True)
    assert tables_of(tmp_path / "again") == without_funnel(tables_of(sample_run.folder))


@pytest.mark.slow
@pytest.mark.server
def test_a_build_without_prefect_is_the_same(sample_run: SampleRun, built_once: Path) -> None:
    ours, theirs = without_funnel(tables_of(built_once)), without_funnel(tables_of(sample_run.folder))
    assert {name: data for name, data in ours.items() if not name.startswith("audit_")} == {
        name: data for name, data in theirs.items() if not name.startswith("audit_")
    }


@pytest.mark.slow
def test_a_changed_document_redoes_what_reads_documents(built_once: Path, inputs: Path, tmp_path: Path) -> None:
    run, changed = Path(shutil.copytree(built_once, tmp_path / "run")), Path(shutil.copytree(inputs, tmp_path / "in"))
    document = changed / EDITED
    document.write_text(document.read_text() + "\n## Deleting a macro\n\nOnly an admin can delete a shared macro.\n")
    redone = build_without_prefect(run, changed, inputs, SETTINGS)
    assert redone == [stage for stage in STAGES if stage not in {"ingest_queries", "split"}]
    assert build_without_prefect(run, changed, inputs, SETTINGS) == []
    build_without_prefect(tmp_path / "fresh", changed, inputs, SETTINGS)
    assert tables_of(run) == tables_of(tmp_path / "fresh")
    assert tables_of(run) != tables_of(built_once)


@pytest.mark.slow
def test_a_changed_document_with_the_same_text_redoes_the_ingest_alone(
    built_once: Path, inputs: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(built_once, tmp_path / "run"))
    changed = Path(shutil.copytree(inputs, tmp_path / "in"))
    (changed / EDITED).touch()
    assert build_without_prefect(run, changed, inputs, SETTINGS) == []
    with (changed / EDITED).open("a") as file:
        file.write("\n")
    assert build_without_prefect(run, changed, inputs, SETTINGS) == ["ingest_documents"]
    assert tables_of(run) == tables_of(built_once)


@pytest.mark.parametrize(
    ("table", "stage"), [("documents", "ingest_documents"), ("chunks", "chunk"), ("qrels", "label"), ("pool", "pool")]
)
def test_a_deleted_part_is_rebuilt_and_its_readers_stand(
    built_once: Path, inputs: Path, tmp_path: Path, table: str, stage: str
) -> None:
    run = Path(shutil.copytree(built_once, tmp_path / "run"))
    min((run / "tables" / table).rglob("*.parquet")).unlink()
    assert build_without_prefect(run, inputs, inputs, SETTINGS) == [stage]
    assert tables_of(run) == tables_of(built_once)


def test_a_setting_redoes_its_own_stage_and_those_whose_input_changed(
    built_once: Path, inputs: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(built_once, tmp_path / "run"))
    other = load_settings(assignments=["evaluate.n_resamples=100", "triplets.num_negatives=3"])
    assert build_without_prefect(run, inputs, inputs, other) == ["triplets", "held_out"]
    assert build_without_prefect(run, inputs, inputs, SETTINGS) == ["triplets", "held_out"]
    assert tables_of(run) == tables_of(built_once)


@pytest.mark.slow
def test_given_judgments_are_the_labels_and_no_judge_runs(built_once: Path, tmp_path: Path) -> None:
    first = Run(str(built_once))
    labelled = first.tables("qrels", "chunks", "queries").sql("""
        SELECT tenant, q.query_id, q.text, c.doc_id, max(relevance) AS rating FROM qrels
        JOIN queries q USING (tenant, query_id) JOIN chunks c USING (tenant, chunk_id)
        WHERE relevance > 0 GROUP BY ALL ORDER BY ALL LIMIT 200
    """)
    judgments = tmp_path / "quepid.csv"
    pc.write_csv(labelled.drop_columns(["query_id"]).rename_columns(["tenant", "query", "docid", "rating"]), judgments)
    settings = load_settings(assignments=["judge.kind=none", "evaluate.n_resamples=100"])
    redone = build_without_prefect(tmp_path / "run", SAMPLE, SAMPLE, settings, qrels=judgments)
    assert {"ingest_judgments", "judged_chunks"} <= set(redone)
    run = Run(str(tmp_path / "run"))
    qrels = run.tables("qrels").sql("SELECT source, count(*) FILTER (relevance > 0) AS n FROM qrels GROUP BY source")
    assert qrels.to_pylist() == [{"source": "human", "n": labelled.num_rows}]
    assert run.tables("verdicts").rows("verdicts") == 0
    kept = set(run.tables("queries").read("queries")["query_id"].to_pylist())
    assert len(kept & set(labelled["query_id"].to_pylist())) == len(set(labelled["text"].to_pylist()))
    assert run.tables("triplets").rows("triplets") > 20
    assert build_without_prefect(tmp_path / "run", SAMPLE, SAMPLE, settings, qrels=judgments) == []
    judgments.write_text(judgments.read_text() + '"default","no such query","x",1\n')
    assert build_without_prefect(tmp_path / "run", SAMPLE, SAMPLE, settings, qrels=judgments) == ["ingest_judgments"]


@pytest.mark.slow
def test_a_judge_labels_what_the_judgments_leave_open(built_once: Path, tmp_path: Path) -> None:
    query = Run(str(built_once)).tables("queries").read("queries").slice(0, 1).to_pylist()[0]
    document = Run(str(built_once)).tables("documents").read("documents")["doc_id"][0].as_py()
    judgments = tmp_path / "one.qrels"
    judgments.write_text(f"{query['query_id']} 0 {document} 1\n")
    run = Run(str(shutil.copytree(built_once, tmp_path / "run")))
    redone = build_without_prefect(run.store.url, SAMPLE, SAMPLE, SETTINGS, qrels=judgments)
    assert {"pool", "calibrate", "label"} <= set(redone)
    sources = run.tables("qrels").sql("SELECT source, count(*) AS n FROM qrels WHERE relevance > 0 GROUP BY source")
    counts = {row["source"]: row["n"] for row in sources.to_pylist()}
    assert counts["human"] == 1
    assert counts["judge"] > 10
