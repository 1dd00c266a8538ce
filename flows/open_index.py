"""Opening an index, or a run and its vectors, for `darklode serve` and `darklode index export`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darklode.flows import factories
from darklode.flows.open_systems import BASE_SYSTEM, index_settings, open_adapters, open_index_check, resolve_encoder
from darklode.flows.runs import folder_kind, read_run
from darklode.flows.vector_source import open_vector_source
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import CommandLineError, DoesNotFit
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.export.vector_export import export_points, semantic_ids
from darklode.pipeline.index.retriever import IndexRetriever
from darklode.pipeline.index.source import tenant_sources
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.retrievers.neural import Neural, chunk_vectors
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.pipeline.serve.mapped_texts import IndexedTexts
from darklode.pipeline.serve.service import SearchRequest, SearchService, TenantServices
from darklode.pipeline.train.release.adapter import Adapter
from darklode.schemas.settings import Settings

MAX_ENCODERS = 2


@dataclass(frozen=True)
class ServedIndex:
    """A search service, ready to answer.

    Attributes:
        service: answers requests.
        settings: settings of the run or the index; their analyzer marks query terms.
        about: description of the searched texts.
    """

    service: SearchService | TenantServices
    settings: Settings
    about: str


@contextmanager
def open_service(
    folder: str, encoders: Sequence[str], tenant: str | None, values: Mapping[str, Any] | None = None
) -> Iterator[ServedIndex]:
    """Search systems for the texts of one tenant, or of each tenant of an index.

    Each has answered a request, so its model is loaded.

    Args:
        folder: output of `darklode index`, or a run.
        encoders: `base`, encoders of the settings, sentence-transformers models, and folders of `adapt` and
            `train-towers`; at most two different ones; empty: `base`.
        tenant: the tenant; None: all of the index, that of the encoders, or the only one of a run.
        values: overrides of the settings, as nested sections.

    Raises:
        ArtifactError: there is neither an index nor a run, or no such encoder.
        CommandLineError: an encoder does not encode queries for these vectors.
        DoesNotFit: an encoder was adapted from another one, or for another tenant.
    """
    names = list(encoders) or [BASE_SYSTEM]
    if len(set(names)) != len(names) or len(names) > MAX_ENCODERS:
        raise CommandLineError("give at most two different --encoder")
    run = Run(folder)
    is_index = folder_kind(run) == "index"
    settings = index_settings(folder, values) if is_index else read_run(run).with_overrides(values or {})
    systems = NamedSystems.from_names(names, settings)
    with (
        tempfile.TemporaryDirectory(prefix="darklode-serve-") as scratch,
        (_serve_index if is_index else _serve_run)(
            folder, systems, tenant, settings, Path(scratch, "texts.arrow")
        ) as opened,
    ):
        service = opened.service
        requests = {
            name: SearchRequest(name, "warm up", 1, served_tenant)
            for served_tenant in service.tenants
            for name in service.systems(served_tenant)
        }
        service.answers(list(requests.values()))
        yield opened


@dataclass(frozen=True)
class NamedSystems:
    """Query encoders by name.

    Attributes:
        names: all of them, in order.
        adapters: they search the vectors of their base encoder.
        models: they search their own vectors: both towers, encoders of the settings, sentence-transformers models.
    """

    names: Sequence[str]
    adapters: Mapping[str, Adapter]
    models: Mapping[str, EncoderKind]

    @classmethod
    def from_names(cls, names: Sequence[str], settings: Settings) -> NamedSystems:
        """Open encoders by name.

        Raises:
            CommandLineError: a folder without a model.
        """
        adapters = open_adapters(names)
        models = {name: _model(name, settings) for name in names if name != BASE_SYSTEM and name not in adapters}
        return cls(names, adapters, models)

    def of_tenant(self, tenant: str) -> list[str]:
        """Names of those that may encode a tenant's queries."""
        return [name for name in self.names if name not in self.adapters or tenant in self.adapters[name].tenants]

    def encoders(self, settings: Settings) -> dict[str, EncoderKind]:
        """The encoder whose vectors each system searches, by name."""
        adapter_names = [name for name in self.names if name not in self.models]
        base = resolve_encoder(BASE_SYSTEM, settings, self.adapters) if adapter_names else None
        return {name: model for name in self.names if (model := self.models.get(name, base))}


def _model(name: str, settings: Settings) -> EncoderKind:
    if name not in settings.encoders and Path(name).is_dir() and not _holds_model(name):
        raise CommandLineError(
            f"--encoder {name}: the folder has neither a model nor an encoder of `darklode adapt` or "
            "`darklode train-towers`"
        )
    return factories.encoder(name, settings)


def _holds_model(folder: str) -> bool:
    files = ("modules.json", "config.json")
    return factories.both_towers(folder) is not None or any(Path(folder, file).exists() for file in files)


@contextmanager
def _serve_index(
    folder: str, named_systems: NamedSystems, tenant: str | None, settings: Settings, file: Path
) -> Iterator[ServedIndex]:
    with open_index_check(folder, settings.model_dump(mode="json")) as check:
        searcher, source = check.searcher, check.source
        if tenant is not None:
            searcher.resolve_tenant(tenant)
        for adapter in named_systems.adapters.values():
            searcher.require_same_encoder(adapter)
            adapter.require_intact()
            if tenant is not None:
                adapter.require_tenant(tenant)
        for name, model in named_systems.models.items():
            if model.encoder_id() != searcher.encoder.encoder_id():
                raise DoesNotFit(
                    f"--encoder {name} is {model.encoder_id()}, but {folder} was built with "
                    f"{searcher.encoder.encoder_id()}; omit --encoder to use that"
                )
        services, unserved = dict[str, SearchService](), list[str]()
        for number, tenant_source in enumerate(tenant_sources(source, tenant)):
            (name,) = tenant_source.tenants
            if name not in searcher.tenants:  # it came after the last update
                continue
            system_names = named_systems.of_tenant(name)
            if not system_names:
                unserved.append(name)
                continue
            texts = IndexedTexts(tenant_source.text_tables(), file.with_suffix(f".{number}"))
            systems: dict[str, Retriever] = {
                system: IndexRetriever(searcher, texts.ids, named_systems.adapters.get(system), name)
                for system in system_names
            }
            services[name] = SearchService(name, texts, systems)
        about = f"{len(searcher.texts):,} texts in an index of kind {searcher.facts['built']}"
        if unserved:
            about += f"; not served, because no --encoder is for them: {', '.join(unserved)} (add --encoder base)"
        if not services:
            raise DoesNotFit(
                f"{source.url} has none of the tenants that {folder} and its encoders have; run `darklode index "
                "update` first"
            )
        (first, *others) = services.values()
        yield ServedIndex(TenantServices(services) if others else first, settings, about)


@contextmanager
def _serve_run(
    folder: str, named_systems: NamedSystems, tenant: str | None, settings: Settings, file: Path
) -> Iterator[ServedIndex]:
    adapters = named_systems.adapters
    encoders = named_systems.encoders(settings)
    for encoder in encoders.values():
        encoder.fetch()
    first_encoder = next(iter(encoders.values()))
    source = open_vector_source(folder, settings, first_encoder, tenant, next(iter(adapters.values()), None))
    for name, adapter in adapters.items():
        _require_same(adapter, encoders[name].encoder_id(), source.tenants[0], folder)
    texts = IndexedTexts(source.text_tables(), file)
    cache = EmbeddingCache(settings.cache.root, settings.cache.vector_dtype)
    deferred_encoders = {
        encoder_settings.encoder_id(): Deferred(encoder_settings, settings.cache.root)
        for encoder_settings in encoders.values()
    }
    vectors = {key: chunk_vectors(encoder, cache, texts) for key, encoder in deferred_encoders.items()}
    systems = dict[str, Retriever]()
    for name in named_systems.names:
        key = encoders[name].encoder_id()
        encode = adapters[name].encode if name in adapters else deferred_encoders[key].encode_queries
        systems[name] = Neural(name, encode, vectors[key], settings.vector_search)
    service = SearchService(source.tenants[0], texts, systems)
    yield ServedIndex(service, settings, f"{len(texts):,} texts, exact search")


def export_index(folder: str, engine: str, to: Path, encoder: str | None, tenant: str | None) -> list[Path]:
    """Write the vectors of an index or a run for a search engine; returns the files.

    Args:
        folder: output of `darklode index`, or a run.
        engine: name of the search engine.
        to: a new or empty folder.
        encoder: encoder of the vectors; required for a run, not allowed for an index.
        tenant: the tenant; None: that of the index, or the only one.

    Raises:
        CommandLineError: an encoder is given for an index, or none for a run.
        DoesNotFit: the texts changed since the index was built, or the index has no such tenant, or several and none is
            given.
        ExportError: as for `export_points`.
    """
    run = Run(folder, untouched=True)
    if folder_kind(run) != "index":
        if encoder is None:
            raise CommandLineError("a run needs --encoder NAME: the encoder whose vectors are exported")
        settings = read_run(run).settings
        model = factories.encoder(encoder, settings)
        model.fetch()
        return export_points(open_vector_source(folder, settings, model, tenant, None), engine, to)
    if encoder is not None:
        raise CommandLineError(f"{folder} is an index with its own encoder; omit --encoder")
    with open_index_check(folder) as check:
        source, facts = check.source, check.searcher.facts
        exported_tenant = check.searcher.resolve_tenant(tenant)
        if source.content() != facts["content"]:
            raise DoesNotFit(f"{source.url} changed since {folder} was built; run `darklode index update` first")
        (tenant_source,) = tenant_sources(source, exported_tenant)
        return export_points(tenant_source, engine, to, semantic_ids(run.tables("semantic_ids"), exported_tenant))


def _require_same(adapter: Adapter, encoder: str, tenant: str, folder: str) -> None:
    if adapter.base.encoder_id() != encoder:
        raise DoesNotFit(
            f"{adapter.store.url} was adapted from {adapter.base.encoder_id()}, but the vectors of {folder} are from "
            f"{encoder}"
        )
    adapter.require_tenant(tenant)
