"""What the tests of ingest share: read a source into a fresh run and look at what came of it."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.artifacts import FunnelStep, Run
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.pipeline.ingest.files import OFFICE_FORMATS
from darklode.pipeline.ingest.queries import INGEST_QUERIES, ingest_queries
from darklode.schemas.settings import IngestSettings
from helpers.runs import execute, read

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Ingested:
    rows: Rows
    rejects: Rows
    funnel: FunnelStep
    run: Run

    @property
    def reasons(self) -> list[tuple[str, int | None]]:
        """Reason and line of each reject, in the order written."""
        return [(row["reason"], row["line"]) for row in self.rejects]


def documents_of(path: Path, run: Path, **settings: Any) -> Ingested:
    return _ingest(path, Run(str(run)), "documents", settings)


def queries_of(path: Path, run: Path, **settings: Any) -> Ingested:
    return _ingest(path, Run(str(run)), "raw_queries", settings)


def _ingest(path: Path, run: Run, table: str, settings: dict[str, Any]) -> Ingested:
    # Every share of rejects passes unless a test is about it: small inputs have large shares.
    stage, work = (INGEST_DOCUMENTS, ingest_documents) if table == "documents" else (INGEST_QUERIES, ingest_queries)
    chosen = IngestSettings.model_validate({"max_reject_share": 1} | settings)
    manifest = execute(run, stage, lambda _tables, output: work(str(path), output, chosen))
    rejects = read(run, "rejects") if "rejects" in run.parts() else []
    (step,) = manifest.funnel
    assert step.rows_in == len(read(run, table)) + len(rejects)
    return Ingested(read(run, table), rejects, step, run)


def hide_office(patch: pytest.MonkeyPatch) -> None:
    """As if the extra `office` were not installed."""
    for _, package in OFFICE_FORMATS.values():
        patch.setitem(sys.modules, package, None)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def folder(root: Path, files: dict[str, str | bytes]) -> Path:
    """A folder with these files."""
    for name, content in files.items():
        write(root / "docs" / name, content)
    return root / "docs"


def ingest(root: Path, files: dict[str, str | bytes], **settings: Any) -> Ingested:
    """Documents of a folder with these files."""
    return documents_of(folder(root, files), root / "run", **settings)
