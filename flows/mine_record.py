"""What a mined run is made from, kept beside its tables."""

import json
from dataclasses import dataclass
from datetime import date
from typing import Any

import yaml

from flows.config import resolve
from pipeline.artifacts import Run
from pipeline.errors import ArtifactError
from schemas.settings import Settings


@dataclass(frozen=True)
class Sources:
    """What a mined run is made from: its search logs and its documents, as the user named them."""

    logs: str
    docs: str


def record(run: Run, logs: str, docs: str, settings: Settings) -> Sources:
    """Note what the run is made from.

    Raises:
        ArtifactError: the folder holds a benchmark.
    """
    before = _inputs(run)
    if before and "logs" not in before:
        raise ArtifactError(f"{run.store.url} holds a benchmark made by `darklode build`; choose another --out")
    chosen = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    run.store.write("settings.yaml", chosen.encode())
    _note(run, before | {"logs": logs, "docs": docs})
    return Sources(logs, docs)


def recorded(run: Run) -> tuple[Sources, Settings] | None:
    """Sources and settings of a mined run; None where the folder holds something else, or nothing."""
    inputs, settings = _inputs(run), run.store.read("settings.yaml")
    if settings is None or "logs" not in inputs:
        return None
    return Sources(inputs["logs"], inputs["docs"]), resolve(yaml.safe_load(settings))


def ask_to_learn(run: Run) -> None:
    """Note the wish that planner and click model learn from all that is settled by now."""
    days = run.tables("impressions").by_day("impressions", "timestamp")
    if days:
        _note(run, _inputs(run) | {"learn": max(days)})


def asked_to_learn(run: Run) -> date | None:
    """The log's last day when somebody asked to learn anew; None: nobody did."""
    asked = _inputs(run).get("learn")
    return date.fromisoformat(asked) if asked else None


def _inputs(run: Run) -> dict[str, Any]:
    return dict(json.loads(run.store.read("inputs.json") or b"{}"))


def _note(run: Run, inputs: dict[str, Any]) -> None:
    run.store.write("inputs.json", json.dumps(inputs, indent=1).encode())
