"""One head per tenant over a shared base: each in its own folder, trained together in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Step
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.types import Row
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.fit.stage import load_best_trial
from darklode.pipeline.train.release.adapter import ADAPTER_FOLDER, HEAD_FILE, RECORD_FILE, read_record
from darklode.pipeline.train.release.identity import SCORE_COLUMNS, fingerprint, record
from darklode.pipeline.train.release.verdict import read_verdict
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTED_TENANTS

if TYPE_CHECKING:
    from darklode.pipeline.train.fit.batched_training import BatchedTraining

TENANTS_STAGE = Stage("adapted_tenants", 3, (), (ADAPTED_TENANTS.name,))

TENANTS_PER_BLOCK = 64
"""Tenants per block: their rows and vectors are in memory together."""


@dataclass(frozen=True)
class TenantJob:
    """One tenant's adapter.

    Attributes:
        tenant: the tenant.
        run: its folder.
        begin: returns its stages in data order, and a function that writes the release.
    """

    tenant: str
    run: Run
    begin: Callable[[], tuple[Sequence[Step], Callable[[], None]]]


def tenant_folder(tenant: str) -> str:
    """Folder name of a tenant; any tenant name maps to a valid and distinct name."""
    return f"tenants/{quote(tenant, safe='').replace('.', '%2E')}"


def adapt_tenants(
    sources: Sequence[TrainingSource], output: Output, *, tenants: Sequence[str], job: Callable[[str], TenantJob]
) -> None:
    """Adapt the base to each tenant's rows alone, and write one row per tenant.

    Folders that are up to date are skipped. A tenant with unusable rows is recorded with the reason and does not stop
    the others.

    Args:
        sources: the runs.
        output: receives `adapted_tenants`.
        tenants: the tenants to adapt to; empty: all with triplets.
        job: creates a tenant's adapter.
    """
    all_tenants = sorted({tenant_name for source in sources for tenant_name in source.tenants()})
    selected = sorted(set(tenants)) or all_tenants
    rows: list[Row] = []
    for start in range(0, len(selected), TENANTS_PER_BLOCK):
        block = [job(tenant) for tenant in selected[start : start + TENANTS_PER_BLOCK]]

        def report(done: int = start) -> None:
            output.progress(done, len(selected), "tenants")

        rows += _adapt_block(block, report)
    output.write(ADAPTED_TENANTS.name, pa.Table.from_pylist(rows, schema=ADAPTED_TENANTS.schema))
    shipped_rows = [row for row in rows if row["shipped"] is not None]
    dropped = {"rejected": len(rows) - len(shipped_rows)} if len(shipped_rows) < len(rows) else {}
    output.count(FunnelStep(TENANTS_STAGE.name, "tenants", len(rows), "adapters", len(shipped_rows), dropped))


def _adapt_block(jobs: Sequence[TenantJob], report: Callable[[], None]) -> Iterator[Row]:
    from darklode.pipeline.train.fit.batched_training import BatchedTraining

    batched = BatchedTraining(len(jobs))
    with ThreadPoolExecutor(len(jobs)) as threads:
        futures = [threads.submit(copy_context().run, _tenant_row, job, batched, report) for job in jobs]
    return (future.result() for future in futures)


def _tenant_row(job: TenantJob, batched: BatchedTraining, report: Callable[[], None]) -> Row:
    """Make a tenant's folder if needed, and return its row."""
    about = {"tenant": job.tenant, "folder": tenant_folder(job.tenant)}
    with batched.working():
        try:
            steps, write_release = job.begin()
            for step in steps:
                if not (plan := step.plan(job.run)).is_up_to_date:
                    job.run.execute(plan, step.execute, lambda *_: report())
            write_release()
        except DarklodeError as error:
            job.run.store.delete(RECORD_FILE)
            return dict.fromkeys(ADAPTED_TENANTS.schema.names) | about | {"reason": str(error)}
    facts = read_record(job.run.store)
    facts_columns = {name: facts[name] for name in ("shipped", "reason", "data", "weights")}
    return about | {"adapter": facts["id"]} | facts_columns | {name: facts["scores"][name] for name in SCORE_COLUMNS}


def save_head(run: Run, base: BaseEncoder, adapt: AdaptSettings) -> None:
    """Write a tenant's head and its record, without a copy of the base; skips an up-to-date folder.

    Args:
        run: a run with complete stages.
        base: the encoder that was adapted.
        adapt: settings of a head method.
    """
    from darklode.pipeline.train.fit.method_registry import create_method

    assert isinstance(base.encoder, SentenceTransformersSettings)
    tables = run.tables("adaptation_trials", "adapter_weights", "adapter_verdict")
    verdict = read_verdict(tables)
    files: dict[str, bytes] = {}
    if verdict["shipped"] == "adapted":
        score, weights = load_best_trial(tables)
        files = {
            f"{ADAPTER_FOLDER}/{name}": data
            for name, data in create_method(adapt, base).export_tensors(weights, score["share"]).items()
        }
    if run.store.read(HEAD_FILE) != files.get(HEAD_FILE):
        run.store.delete_folder(ADAPTER_FOLDER)
        for name, data in files.items():
            run.store.write(name, data)
    record(run, base, base.encoder, verdict, fingerprint(run.tables()), "head")
