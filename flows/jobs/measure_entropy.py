"""measure-entropy: contrastive entropy of an encoder, an adapter or a tower on a run's labelled pairs."""

from __future__ import annotations

from typing import Any

from darklode.flows import factories
from darklode.flows.jobs.job import Job
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.runs import is_adapter, read_run, read_settings
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit
from darklode.pipeline.base.memory.parts import resolve_cache
from darklode.pipeline.laws.entropy_stage import ENTROPY_STAGE, MINED_ENTROPY_STAGE, EntropySystem, entropies
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.release.adapter import Adapter
from darklode.schemas.law_tables import CONTRASTIVE_ENTROPY
from darklode.schemas.settings import Settings

TEMPERATURE = 0.05
"""Default for encoders without a temperature: 1 / scale of sentence-transformers' MultipleNegativesRankingLoss (20)."""


def measure_entropy(
    source: str,
    encoder: str,
    tenant: str | None = None,
    temperature: float | None = None,
    settings: dict[str, Any] | None = None,
) -> str:
    """Measure each labelled positive of a run against random texts; the run keeps the tables of the last encoder.

    Args:
        source: folder or s3:// prefix of a build or a mined run.
        encoder: an encoder of the settings, a sentence-transformers model, or a folder of `adapt` or `train-towers`.
        tenant: tenant to measure; None: the adapter's, or all.
        temperature: temperature of the scores; None: the model's own.
        settings: overrides of the run's settings.

    Returns:
        How many pairs were measured.

    Raises:
        ArtifactError: there is no finished run, or it has no such tenant.
        DoesNotFit: the adapter is another tenant's.
    """
    run = Run(source)
    record = read_run(run)
    resolved, training_source = record.with_overrides(settings or {}), record.training_source()
    adapter = Adapter.open(encoder) if is_adapter(Run(encoder)) else None
    tenants = _select_tenants(training_source, tenant, adapter)
    system = _system(training_source, resolved, encoder, adapter, temperature)
    with run.lock(), spread_over(resolved.runner, run) as spread:
        step = Step(
            MINED_ENTROPY_STAGE if record.is_mined else ENTROPY_STAGE,
            call(entropies, system, spread, tenants=tenants, seed=resolved.seed),
            untracked=("spread",),
            source=training_source,
        )
        run_step(run, step)
        publish(run)
    rows = run.tables(CONTRASTIVE_ENTROPY.name).rows(CONTRASTIVE_ENTROPY.name)
    return f"{run.store.url}: contrastive entropy of {rows:,} pairs by {encoder}."


def _system(
    source: TrainingSource, settings: Settings, name: str, adapter: Adapter | None, temperature: float | None
) -> EntropySystem:
    kind = adapter.base if adapter else factories.encoder(name, settings)
    kind.fetch()
    base = BaseEncoder(kind, resolve_cache(settings.cache), settings.vector_search, (source,))
    if adapter is None:
        return EntropySystem(name, base, None, temperature or TEMPERATURE)
    own_temperature = read_settings(Run(adapter.store.url)).adapt.temperature
    return EntropySystem(name, base, adapter.encode, temperature or own_temperature, adapter.facts["weights"])


def _select_tenants(source: TrainingSource, tenant: str | None, adapter: Adapter | None) -> list[str]:
    existing_tenants = source.tenants()
    if adapter is None:
        selected = [tenant] if tenant else existing_tenants
    elif tenant is not None and tenant not in adapter.tenants:
        raise DoesNotFit(f"{adapter.store.url} is for tenant {adapter.tenant}, not for {tenant}")
    else:
        selected = [tenant or adapter.tenant]
    missing = [tenant_name for tenant_name in selected if tenant_name not in existing_tenants]
    if missing or not existing_tenants:
        missing_name = missing[0] if missing else ""
        raise ArtifactError(f"{source.run.store.url} has no labelled pairs of tenant {missing_name}")
    return selected


JOB = Job("measure-entropy", measure_entropy)
