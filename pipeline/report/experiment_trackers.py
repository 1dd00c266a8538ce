"""Send the results of `evaluate` to a JSON file, MLflow or Weights & Biases (`evaluate.report_to`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.errors import ExportError, MissingPart
from darklode.schemas.evaluation import JSON_PREFIX

RESULT_TABLES = ("evaluation", "evaluation_pairs", "online", "online_pairs")

MAIN_PART = "counted"
"""Part of the queries whose measures have no prefix."""


def check_trackers(targets: Sequence[str]) -> tuple[()]:
    """Check that the packages of the targets are installed; there are no notes.

    Raises:
        MissingPart: one is not.
    """
    for target in targets:
        if not target.startswith(JSON_PREFIX) and find_spec(target) is None:
            raise MissingPart(f"evaluate.report_to {target} needs the package {target}: pip install {target}")
    return ()


def report_evaluation(tables: Tables, targets: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Send the measures of each system to every target.

    A tracker gets one of its runs per system, named like it. Server, project or experiment and credentials are those of
    the tracker's own environment variables, such as MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME and WANDB_PROJECT.

    Args:
        tables: tables of a run, with `evaluation`.
        targets: `json:FILE`, `mlflow` or `wandb`, as in `evaluate.report_to`.
        settings: values that are recorded beside the measures.

    Raises:
        MissingPart: a tracker's package is not installed.
        ExportError: a file cannot be written, or a tracker refuses.
    """
    check_trackers(targets)
    for target in targets:
        if target.startswith(JSON_PREFIX):
            _write_json(tables, Path(target.removeprefix(JSON_PREFIX)), settings)
        else:
            for system, metrics in system_metrics(tables).items():
                _TRACKERS[target](system, metrics, {"run": tables.url, **settings})


def system_metrics(tables: Tables) -> dict[str, dict[str, float]]:
    """Metrics of each system over all tenants, by a name that every tracker takes: `nDCG@10` is `nDCG_at_10`.

    The ends of an interval end in `_low` and `_high`. Measures of a part of the queries begin with its name and `/`.

    Args:
        tables: must contain `evaluation`.
    """
    metrics: dict[str, dict[str, float]] = {}
    for row in tables.read("evaluation").to_pylist():
        if row["tenant"] is not None:
            continue
        prefix = "" if row["part"] == MAIN_PART else f"{_metric_name(row['part'])}/"
        name = f"{prefix}{_metric_name(row['measure'])}"
        values = {name: row["value"], f"{name}_low": row["low"], f"{name}_high": row["high"]}
        values[f"{prefix}queries"] = row["queries"]
        metrics.setdefault(row["system"], {}).update({key: value for key, value in values.items() if value is not None})
    return metrics


def _metric_name(name: str) -> str:
    return re.sub(r"[^\w.\-]+", "_", name.replace("@", "_at_"))


def _write_json(tables: Tables, path: Path, settings: Mapping[str, Any]) -> None:
    rows = {name: tables.read(name).to_pylist() for name in RESULT_TABLES}
    content = json.dumps({"run": tables.url, "settings": settings} | rows, ensure_ascii=False, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n", encoding="utf-8")
    except OSError as error:
        raise ExportError(
            f"cannot write {path}: {error.strerror}; choose another file in evaluate.report_to"
        ) from error


def _log_to_mlflow(system: str, metrics: Mapping[str, float], params: Mapping[str, Any]) -> None:
    import mlflow

    try:
        with mlflow.start_run(run_name=system, nested=mlflow.active_run() is not None):
            mlflow.log_params({"system": system, **params})
            mlflow.log_metrics(dict(metrics))
    except mlflow.MlflowException as error:
        raise ExportError(f"evaluate.report_to mlflow: {error}; check MLFLOW_TRACKING_URI") from error


def _log_to_wandb(system: str, metrics: Mapping[str, float], params: Mapping[str, Any]) -> None:
    import wandb

    config = {"system": system, **params}
    try:
        with wandb.init(name=system, job_type="darklode evaluate", config=config, reinit="create_new") as run:
            run.summary.update(dict(metrics))
    except wandb.Error as error:
        raise ExportError(f"evaluate.report_to wandb: {error}; check WANDB_API_KEY and WANDB_MODE") from error


_TRACKERS = {"mlflow": _log_to_mlflow, "wandb": _log_to_wandb}
