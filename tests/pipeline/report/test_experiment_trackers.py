"""Results of `evaluate` in a JSON file, and in real local stores of MLflow and W&B where they are installed."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import ExportError, MissingPart
from darklode.pipeline.report import experiment_trackers
from darklode.pipeline.report.experiment_trackers import check_trackers, report_evaluation, system_metrics
from darklode.schemas.tables import TABLES
from helpers.runs import put

SETTINGS = {"judge": "none", "seed": 13}
ROWS = [
    ("bm25", "nDCG@10", "counted", 0.25, 0.125, 0.5, None),
    ("bm25", "R(rel=2)@5", "shared positive", 0.75, None, None, None),
    ("new", "nDCG@10", "counted", 0.5, 0.25, 0.75, None),
    ("new", "nDCG@10", "counted", 0.9, 0.8, 1.0, "acme"),
]
BM25 = {
    "nDCG_at_10": 0.25,
    "nDCG_at_10_low": 0.125,
    "nDCG_at_10_high": 0.5,
    "queries": 3,
    "shared_positive/R_rel_2__at_5": 0.75,
    "shared_positive/queries": 3,
}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    names = ("system", "measure", "part", "value", "low", "high", "tenant")
    run = Run(str(tmp_path / "run"))
    rows = [dict(zip(names, row, strict=True)) | {"ceiling": 1.0, "queries": 3} for row in ROWS]
    put(run, "evaluation", pa.Table.from_pylist(rows, schema=TABLES["evaluation"].schema))
    return all_tables(run)


def test_metrics_have_names_that_every_tracker_takes(tables: Tables) -> None:
    new = {"nDCG_at_10": 0.5, "nDCG_at_10_low": 0.25, "nDCG_at_10_high": 0.75, "queries": 3}
    assert system_metrics(tables) == {"bm25": BM25, "new": new}


def test_a_json_file_holds_the_tables(tables: Tables, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "measures.json"
    report_evaluation(tables, [f"json:{path}"], SETTINGS)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["run"], content["settings"]) == (tables.url, SETTINGS)
    assert content["evaluation"] == tables.read("evaluation").to_pylist()
    assert content["evaluation_pairs"] == content["online"] == content["online_pairs"] == []
    with pytest.raises(
        ExportError, match=r"cannot write .*measures\.json/below: .*another file in evaluate\.report_to"
    ):
        report_evaluation(tables, [f"json:{path}/below"], SETTINGS)


def test_a_missing_package_is_named_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_trackers, "find_spec", lambda _name: None)
    assert check_trackers([f"json:{tmp_path}/x.json"]) == ()
    with pytest.raises(MissingPart, match=r"report_to wandb needs the package wandb: pip install wandb"):
        check_trackers(["json:x", "wandb"])


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "file"])
def test_a_local_mlflow_store_holds_a_run_per_system(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    mlflow: Any = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    address = f"sqlite:///{tmp_path}/mlflow.db" if store == "sqlite" else (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "retrievers")
    monkeypatch.chdir(tmp_path)
    report_evaluation(tables, ["mlflow"], SETTINGS)
    client = mlflow.MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("retrievers")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert runs.keys() == {"bm25", "new"}
    assert runs["bm25"].data.metrics == BM25
    assert runs["bm25"].data.params == {"system": "bm25", "run": tables.url, "judge": "none", "seed": "13"}
    assert runs["bm25"].info.status == "FINISHED"


@pytest.mark.slow
def test_wandb_offline_keeps_a_run_per_system(tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb: Any = pytest.importorskip("wandb", reason="wandb is not installed")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    report_evaluation(tables, ["wandb"], SETTINGS)
    wandb.teardown()  # what is buffered is written
    records = [path.read_bytes() for path in sorted(tmp_path.rglob("*.wandb"))]
    assert len(records) == 2
    assert all(b"nDCG_at_10" in record for record in records)
    assert sum(b"shared_positive/R_rel_2__at_5" in record for record in records) == 1


@pytest.mark.slow
def test_what_a_tracker_refuses_is_an_error_in_one_line(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "gopher://127.0.0.1")
    with pytest.raises(ExportError, match=r"report_to mlflow: .*gopher.*check MLFLOW_TRACKING_URI"):
        report_evaluation(tables, ["mlflow"], SETTINGS)
