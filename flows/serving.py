"""What `search`, `adapt check` and `adapt swap` open: a run's index, and systems by the names that were given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from darklode.flows import tools
from darklode.flows.runs import ADAPTED, Recorded, noted, recorded
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, CommandLineError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.retrieve.retrievers.port import Factory
from darklode.pipeline.serve.adapted import AdaptedBuilder
from darklode.pipeline.serve.index import Index
from darklode.pipeline.train.adapter import Adapter
from darklode.pipeline.train.sources import Source
from darklode.schemas.settings import Settings

BASE, BM25 = "base", "bm25"


@contextmanager
def open_index(url: str, tenant: str | None, adapters: Sequence[Adapter] = ()) -> Iterator[tuple[Index, Recorded]]:
    """A run's index, and what the run was made from.

    Args:
        url: the run's folder or prefix.
        tenant: whose texts; None: that of the adapters, or the only one.
        adapters: that are to search it.

    Raises:
        ArtifactError: no finished run lies there, it has several tenants and none is named, or an adapter is another
            tenant's.
    """
    run = Run(url)
    made = recorded(run)
    source = Source(run, 0, made.mined, made.settings.mining.text_characters)
    mine = _tenant(source, tenant, adapters)
    with tempfile.TemporaryDirectory(prefix="darklode-index-") as scratch:
        yield Index(source, mine, Path(scratch)), made


def _tenant(source: Source, named: str | None, adapters: Sequence[Adapter]) -> str:
    found = source.tenants()
    for adapter in adapters:
        if named is not None and named != adapter.tenant:
            raise ArtifactError(f"{adapter.store.url} is the tenant {adapter.tenant}'s, and nothing for {named}")
        named = adapter.tenant
    if named is not None and named not in found:
        raise ArtifactError(f"{source.run.store.url} has no tenant {named}; there are {', '.join(found)}")
    if named is None and len(found) != 1:
        raise ArtifactError(f"{source.run.store.url} holds the tenants {', '.join(found)}: name one with --tenant")
    return named or found[0]


def adapters_of(encoders: Sequence[str]) -> dict[str, Adapter]:
    """The adapters among what was named, by the address that was given."""
    return {name: Adapter.open(name) for name in encoders if name != BASE and ADAPTED in noted(Run(name))}


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
        encoders: `base`, folders of adapters, encoders of the settings or sentence-transformers models.
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
            found[name] = _neural(name, _encoder(name, settings, adapters), settings)
    return found


def _encoder(name: str, settings: Settings, adapters: Mapping[str, Adapter]) -> EncoderKind:
    if name != BASE:
        return tools.encoder(name, settings)
    known: list[EncoderKind] = [one.base for one in adapters.values()] or [
        as_kind(one, EncoderKind) for one in settings.encoders.values()
    ]
    if len({one.encoder_id() for one in known}) != 1:
        raise CommandLineError("--encoder base: name an adapter beside it, or the encoder itself")
    return known[0]


def _neural(name: str, encoder: EncoderKind, settings: Settings) -> NeuralBuilder:
    encoder.fetch()
    return NeuralBuilder(name, encoder, settings.vectors, settings.cache)
