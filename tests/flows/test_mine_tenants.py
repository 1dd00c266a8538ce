"""Two tenants whose queries, sessions and ids are the same: neither changes the other's triplets, nor is in them."""

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Run
from helpers.commands import mine_without_prefect, tables_of

ACME, BIRCH = "acme", "birch"
BOTH = (ACME, BIRCH)
MARKERS = {ACME: "acmeonly", BIRCH: "birchonly"}
THINGS = "invoice webhook token refund tenant export locale agent ticket survey macro queue".split()
VERBS = "rotate create delete archive rename restore share schedule".split()
DAYS = 4
BOT = "s3"


def document(tenant: str, number: int) -> dict[str, str]:
    draw = random.Random(f"{tenant} {number}")
    text = " ".join(f"To {verb} the {draw.choice(THINGS)}, open its page." for verb in draw.sample(VERBS, 3))
    thing = THINGS[number % len(THINGS)]
    return {"tenant": tenant, "doc_id": f"d{number}", "title": f"The {thing}", "text": f"{MARKERS[tenant]} {text}"}


def searches(tenant: str, day: int, seed: int) -> list[dict[str, object]]:
    """A day's rows: what both searched, at the same times and in sessions of the same names; other clicks."""
    same, own = random.Random(f"{day} {seed}"), random.Random(f"{tenant} {day} {seed}")
    rows: list[dict[str, object]] = []
    for number in range(60):
        begun = datetime(2026, 3, day, tzinfo=UTC) + timedelta(minutes=same.randrange(1440))
        base = {"tenant": tenant, "session_id": f"s{number % 17}", "timestamp": begun.isoformat()}
        base["query"] = f"{same.choice(VERBS)} {same.choice(THINGS)} {same.choice(THINGS)}"
        for place, doc in enumerate(same.sample(range(len(THINGS)), 4), 1):
            rows.append(base | {"doc_id": f"d{doc}", "position": place, "clicked": own.random() < 0.2})
    return rows + (hasty(day) if tenant == BIRCH else [])


def hasty(day: int) -> list[dict[str, object]]:
    """A bot of birch's in a session whose name acme's people use."""
    base = {"tenant": BIRCH, "session_id": BOT, "timestamp": f"2026-03-{day:02d}T12:00:00Z", "position": 1}
    return [base | {"query": f"{THINGS[n % 12]} number {n}", "doc_id": "d1", "clicked": True} for n in range(40)]


def mined(folder: Path, tenants: Sequence[str], seed: int, assignments: Sequence[str]) -> Path:
    """A run on some of the tenants' documents and logs, line by line in turn."""
    docs = [document(tenant, number) for number in range(len(THINGS)) for tenant in tenants]
    write(folder / "docs" / "docs.jsonl", docs)
    for day in range(1, DAYS + 1):
        of_tenants = [searches(tenant, day, seed) for tenant in tenants]
        rows = sorted((row for rows in of_tenants for row in rows), key=lambda row: str(row["timestamp"]))
        write(folder / "log" / f"2026-03-{day:02d}.jsonl", rows)
    settings = load_settings(assignments=["logs.max_late_days=0", "term_weighting.refresh_days=2", *assignments])
    mine_without_prefect(folder / "run", settings, logs=folder / "log", docs=folder / "docs")
    return folder / "run"


def write(file: Path, rows: Sequence[object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def of_tenant(run: Path, tenant: str) -> dict[str, bytes]:
    """The files of a tenant's triplets."""
    return {name: data for name, data in tables_of(run).items() if name.startswith(f"triplets/tenant-{tenant}/")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "assignments"),
    [
        (1, []),
        (
            2,
            [
                "click.model=coec",
                "click.confidence=0.05",
                "associate.max_lenders_per_query=1",
                "associate.max_lenders=2",
            ],
        ),
        (3, ["click.model=pbm", "click.confidence=0.05", "click.negatives=skipped", "relevance.ranker=none"]),
    ],
)
def test_two_tenants_never_meet(tmp_path: Path, seed: int, assignments: list[str]) -> None:
    both = mined(tmp_path / "both", BOTH, seed, assignments)
    for tenant in BOTH:
        alone = mined(tmp_path / tenant, [tenant], seed, assignments)
        files = of_tenant(both, tenant)
        assert files == of_tenant(alone, tenant) == {n: d for n, d in tables_of(alone).items() if "triplets/t" in n}
        assert {name.split("/")[3] for name in files} >= {"source-click_one_hop", "source-click_multi_hop"}
        (stranger,) = {*MARKERS.values()} - {MARKERS[tenant]}
        for file in (both / "tables" / "triplets" / f"tenant-{tenant}").rglob("*.parquet"):
            texts = [
                text
                for row in pq.read_table(file, partitioning=None).to_pylist()
                for text in (row["positive"], *row["negatives"])
            ]
            assert texts
            assert all(MARKERS[tenant] in text and stranger not in text for text in texts)


@pytest.mark.slow
def test_a_bot_of_one_tenant_is_not_taken_for_a_person_of_the_other(tmp_path: Path) -> None:
    tables = Run(str(mined(tmp_path, BOTH, 1, []))).tables()
    caught = tables.sql("SELECT DISTINCT tenant, id FROM rejects WHERE stage = 'click_evidence'").to_pylist()
    assert caught == [{"tenant": BIRCH, "id": BOT}]
    sessions = "SELECT tenant, count(*) AS n FROM impressions WHERE session_id = ? GROUP BY tenant ORDER BY tenant"
    assert [row["tenant"] for row in tables.sql(sessions, [BOT]).to_pylist()] == [ACME, BIRCH]
