"""What a mined run is made from, kept beside its tables."""

import json
from dataclasses import dataclass, replace
from datetime import date

import yaml

from flows.config import resolve
from pipeline.artifacts import Run
from pipeline.errors import ArtifactError
from pipeline.mining.days import by_day
from schemas.settings import Settings


@dataclass(frozen=True)
class Sources:
    """What a mined run is made from.

    Attributes:
        logs: file, folder or s3:// prefix of search logs.
        docs: file or folder of documents.
        asked: the log's last day when somebody asked to learn anew.
    """

    logs: str
    docs: str
    asked: date | None = None


def record(run: Run, logs: str, docs: str, settings: Settings) -> Sources:
    """Note what the run is made from; a wish to learn anew that was noted before stays.

    Raises:
        ArtifactError: the folder holds a benchmark.
    """
    inputs = run.store.read("inputs.json")
    before = json.loads(inputs) if inputs else {}
    if before and "logs" not in before:
        raise ArtifactError(f"{run.store.url} holds a benchmark made by `darklode build`; choose another --out")
    asked = before.get("asked")
    sources = Sources(logs, docs, date.fromisoformat(asked) if asked else None)
    note(run, sources, settings)
    return sources


def note(run: Run, sources: Sources, settings: Settings) -> None:
    """Write sources and settings into the run's folder."""
    chosen = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    run.store.write("settings.yaml", chosen.encode())
    asked = sources.asked.isoformat() if sources.asked else None
    inputs = {"logs": sources.logs, "docs": sources.docs, "asked": asked}
    run.store.write("inputs.json", json.dumps(inputs, indent=1).encode())


def recorded(run: Run) -> tuple[Sources, Settings] | None:
    """Sources and settings of a mined run; None where the folder holds something else, or nothing."""
    inputs, settings = run.store.read("inputs.json"), run.store.read("settings.yaml")
    paths = json.loads(inputs) if inputs else {}
    if settings is None or "logs" not in paths:
        return None
    asked = date.fromisoformat(paths["asked"]) if paths["asked"] else None
    return Sources(paths["logs"], paths["docs"], asked), resolve(yaml.safe_load(settings))


def ask(run: Run, sources: Sources, settings: Settings) -> Sources:
    """Remember that planner and click model shall learn from all that is settled by now."""
    days = by_day(run.tables("impressions"), "impressions", "timestamp")
    asked = replace(sources, asked=date.fromisoformat(max(days))) if days else sources
    note(run, asked, settings)
    return asked
