"""The vectors of a run or a file, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence

from darklode.flows.runs import read_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, CommandLineError, DoesNotFit
from darklode.pipeline.base.memory.parts import resolve_cache
from darklode.pipeline.index.source import FileSource, RunSource, StoredVectors, TenantSources, VectorSource
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.release.adapter import Adapter
from darklode.schemas.run_inputs import IndexInputs
from darklode.schemas.settings import Settings

VECTOR_FILE_SUFFIXES = (".parquet", ".npy")
ALL_TENANTS = "all"
DEFAULT_TENANT = "default"
"""Tenant of a file of vectors if none is given."""


def open_vector_source(
    source: str, settings: Settings, encoder: EncoderKind, tenant: str | None, adapter: Adapter | None
) -> VectorSource:
    """The vectors of one tenant's texts in a run, or those in a file.

    Raises:
        ArtifactError: the run has several tenants and none is given.
    """
    stored_vectors = StoredVectors(encoder, resolve_cache(settings.cache), settings.index.truncate_dim)
    if source.endswith(VECTOR_FILE_SUFFIXES):
        return FileSource(source, tenant or DEFAULT_TENANT, stored_vectors)
    training_source = read_run(Run(source)).training_source()
    return RunSource(
        training_source, tenant_to_search(training_source, tenant, [adapter] if adapter else []), stored_vectors
    )


def open_index_source(source: str, inputs: IndexInputs, settings: Settings, encoder: EncoderKind) -> VectorSource:
    """The vectors of an index's source, with the tenants that it was built with.

    Raises:
        ArtifactError: the source has no such tenant any more.
    """
    if inputs.tenants is not None:
        return open_tenant_sources(source, settings, encoder, inputs.tenants)
    return open_vector_source(source, settings, encoder, inputs.tenant, None)


def open_tenant_sources(source: str, settings: Settings, encoder: EncoderKind, names: str) -> VectorSource:
    """The vectors of several tenants' texts in a run.

    Args:
        source: the run.
        settings: settings of the cache and the index.
        encoder: encoder of the vectors.
        names: comma-separated tenants, or `all`.

    Raises:
        ArtifactError: the run has no such tenant.
        CommandLineError: it is a file of vectors, or no tenant is named.
    """
    if source.endswith(VECTOR_FILE_SUFFIXES):
        raise CommandLineError(f"--tenants: {source} is a file of vectors, which has one tenant; omit it")
    training_source = read_run(Run(source)).training_source()
    known_tenants = training_source.text_tenants()
    tenants = known_tenants if names == ALL_TENANTS else sorted({name.strip() for name in names.split(",")} - {""})
    if not tenants:
        raise CommandLineError(f"--tenants: name tenants, separated by commas, or {ALL_TENANTS}")
    for tenant in tenants:
        if tenant not in known_tenants:
            raise ArtifactError(f"{source} has no tenant {tenant}; choose from {', '.join(known_tenants)}")
    stored_vectors = StoredVectors(encoder, resolve_cache(settings.cache), settings.index.truncate_dim)
    return TenantSources(tuple(RunSource(training_source, tenant, stored_vectors) for tenant in sorted(tenants)))


def tenant_to_search(source: TrainingSource, tenant: str | None, adapters: Sequence[Adapter]) -> str:
    """The given tenant, the adapters', or the only one.

    Raises:
        ArtifactError: the run has no such tenant, or several and none is given.
        DoesNotFit: an adapter is another tenant's.
    """
    tenants, url = source.tenants(), source.run.store.url
    for adapter in adapters:
        if tenant is not None:
            adapter.require_tenant(tenant)
        tenant = tenant or adapter.tenant
    if tenant is not None and tenant not in tenants:
        if adapters:
            raise DoesNotFit(f"{adapters[0].store.url} is for tenant {tenant}, and {url} has no such tenant")
        raise ArtifactError(f"{url} has no tenant {tenant}; choose from {', '.join(tenants)}")
    if tenant is None and len(tenants) != 1:
        raise ArtifactError(f"{url} has the tenants {', '.join(tenants)}; choose one with --tenant")
    return tenant or tenants[0]
