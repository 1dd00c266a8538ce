"""Builds retrievers that are made of other retrievers, of a model, or of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.retrieve.retrievers.kinds import Assembly, CompositeKind
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings


class IdentifiedFactory(Factory, Protocol):
    """A factory whose hits are identified by its settings."""

    @property
    def identity(self) -> Any:
        """Everything besides texts and depth that can change the hits."""


@dataclass(frozen=True)
class CompositeBuilder:
    """Builds a composite retriever; plain data, so that it can travel to another machine.

    Attributes:
        name: the retriever's name in rankings.
        kind: its settings.
        members: builders of the retrievers that it is made of, by name, in the order of the settings.
        cache: where models' results are kept.
        vectors: device and memory of a search.
    """

    name: str
    kind: CompositeKind
    members: tuple[tuple[str, IdentifiedFactory], ...]
    cache: CacheSettings
    vectors: VectorSearchSettings

    def __call__(self, corpus: Corpus) -> Retriever:
        """Build the retriever and open its members.

        Raises:
            MissingPart: a package, key, model or GPU is missing.
        """
        members = tuple(corpus.member(build) for _, build in self.members)
        return self.kind.assemble(Assembly(self.name, corpus, members, self.cache, self.vectors))

    @property
    def member_depth(self) -> int:
        """Depth to which its members are searched."""
        return self.kind.member_depth

    @property
    def shares(self) -> str:
        """Its own name: it shares no fitted data with other retrievers."""
        return self.name

    @property
    def identity(self) -> dict[str, Any]:
        """Its settings, and the identities of its members, whatever their names."""
        return self.kind.identity | {"of": [build.identity for _, build in self.members]}


def with_members(builders: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield builders with the members of composite ones, also nested, by name; a name may occur several times."""
    for name, build in builders:
        yield name, build
        if isinstance(build, CompositeBuilder):
            yield from with_members(build.members)
