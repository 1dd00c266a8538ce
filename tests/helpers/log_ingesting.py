"""What the tests of search logs share: write a log, read it into a run, and look at what came of it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.ingest.logs import INGEST_LOGS, ingest_logs
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import IngestSettings
from helpers.runs import read

Rows = list[dict[str, Any]]
FULL = {
    "event_id": "e1",
    "search_id": "q1",
    "session_id": "s1",
    "user_id": "u1",
    "timestamp": "2026-03-01T10:00:00Z",
    "query": "How  To\tLog in",
    "doc_id": "a.md",
    "position": 2,
    "clicked": True,
    "dwell_seconds": 3.5,
    "variant": "blue",
    "tenant": "acme",
}
"""A row of a log, with every column."""

HEADER = "session_id,timestamp,query,doc_id,position,clicked\n"


@dataclass(frozen=True)
class Mined:
    rows: Rows
    rejects: Rows
    manifest: Manifest
    run: Run

    @property
    def reasons(self) -> list[tuple[str, int | None]]:
        """Reason and line of each reject, in the order written."""
        return [(row["reason"], row["line"]) for row in self.rejects]

    @property
    def files(self) -> dict[str, list[str]]:
        """The names of all parts, which hold their contents' hashes."""
        return {table: [part.file for part in parts] for table, parts in self.manifest.outputs.items()}

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]


def day_of(number: int, *rows: str) -> str:
    """A CSV log of a day in March 2026; without rows, of one search that is named after the day."""
    usual = (f"s,2026-03-{number:02d}T10:00:00Z,query {number},doc,1,true",)
    return HEADER + "".join(f"{row}\n" for row in rows or usual)


def at(hour: int, minute: int = 0, day: int = 1, month: int = 3) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


def logs_of(
    path: Path | str,
    run: Path | str,
    *,
    dates: Collection[date] | None = None,
    nightly: bool = False,
    ingest: dict[str, Any] | None = None,
    **settings: Any,
) -> Mined:
    """Read a log into a run; `nightly`: knowing what the run's last complete one has read."""
    there = Run(str(run))
    # Every share of rejects passes unless a test is about it: small inputs have large shares.
    chosen, how = IngestSettings.model_validate({"max_reject_share": 1} | (ingest or {})), LogSettings(**settings)
    before = there.manifest(INGEST_LOGS) if nightly else None
    known = before.facts["sources"] if before else None
    plan = there.plan(INGEST_LOGS, how.model_dump() | {"tenant": chosen.tenant})
    manifest = there.execute(
        plan, lambda _tables, output: ingest_logs(str(path), output, how, chosen, dates=dates, earlier_days=known)
    )
    rejects = read(there, "rejects") if "rejects" in there.parts() else []
    rows = read(there, "impressions")
    (step,) = manifest.funnel
    assert (step.rows_in, step.rows_out) == (len(rows) + len(rejects), len(rows))
    check_days(there, manifest)
    return Mined(rows, rejects, manifest, there)


def check_days(run: Run, manifest: Manifest) -> None:
    """The days of the facts are those of the parts, and each part is sorted."""
    days: dict[str, list[int]] = {}
    for number, part in enumerate(manifest.outputs["impressions"]):
        rows = run.tables("impressions").part(part).to_pylist()
        (day,) = {row["timestamp"].date().isoformat() for row in rows}
        days.setdefault(day, []).append(number)
        keys = [
            (row["tenant"], row["timestamp"], row["search_id"], row["position"] or 0, row["doc_id"], row["event_id"])
            for row in rows
        ]
        assert keys == sorted(keys)
    assert manifest.facts["days"] == days
    assert list(manifest.facts["days"]) == sorted(days)
