"""Kinds of retrievers, one file each: the settings of a kind, and how it is built on a tenant's chunks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from darklode.pipeline.base.errors import SettingsError
from darklode.schemas.pooling import RETRIEVERS, LocalModel, RetrieverSettings, VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

if TYPE_CHECKING:
    from darklode.pipeline.base.models.local import ModelClass
    from darklode.pipeline.retrieve.encoders.lsa import TermVectors
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus
    from darklode.pipeline.retrieve.retrievers.external import LiveSearch
    from darklode.pipeline.retrieve.retrievers.port import Retriever


class RetrieverKind(RetrieverSettings):
    """Settings of a kind of retriever, and its builder. Plain data, so that it can be pickled for other machines.

    A kind is named in `pool.retrievers` by its own name, or by a name of the section `retrievers`, where it has
    settings other than its defaults.
    """

    @classmethod
    def from_settings(cls, _settings: Settings) -> Self:
        """The kind with its defaults, which its own name in `pool.retrievers` refers to.

        Raises:
            SettingsError: the kind has settings without a default.
        """
        if required := cls.required():
            raise SettingsError(
                f"the retriever {cls.model_fields['kind'].default} has no default for {', '.join(required)}: give it a "
                f"name of your own, --set 'retrievers.NAME={{kind: {cls.model_fields['kind'].default}, "
                f"{required[0]}: …}}', and list NAME"
            )
        return cls.model_validate({})

    @classmethod
    def required(cls) -> list[str]:
        """Names of the settings without a default."""
        return [name for name, field in cls.model_fields.items() if field.is_required()]

    @abstractmethod
    def __call__(self, corpus: Corpus) -> Retriever:
        """Build the retriever: fit, index or open what it searches; called once per tenant."""

    @property
    def identity(self) -> Any:
        """Everything besides texts and depth that can change the hits: the kind, and its settings if it has any."""
        keys = self.decisive()
        return keys if len(keys) > 1 else self.kind

    @property
    def shares(self) -> str:
        """Kinds with the same value share fitted data and are searched on one machine."""
        return self.kind


class FittedKind(RetrieverKind):
    """A kind whose encoder is fitted on the corpus itself.

    Attributes:
        FEEDBACK: use pseudo-relevance feedback, see `Feedback`.
    """

    FEEDBACK: ClassVar[bool] = False

    @abstractmethod
    def fit(self, corpus: Corpus) -> TermVectors:
        """Fit the encoder on the corpus."""

    def __call__(self, corpus: Corpus) -> Retriever:
        from threadpoolctl import threadpool_limits

        from darklode.pipeline.retrieve.retrievers.embedded import Dense, Feedback

        with threadpool_limits(1):  # sums depend on the number of threads in their last bits
            encoder = self.fit(corpus)
        vectors = corpus.vectors(encoder)
        if self.FEEDBACK:
            return Feedback(self.kind, encoder, vectors, seeds=corpus.seeds)
        return Dense(self.kind, encoder, vectors)

    @property
    def shares(self) -> str:
        """A feedback retriever shares fitted data with the retriever of the same name without feedback."""
        return self.kind.removesuffix("_feedback")


class ExternalKind(RetrieverKind):
    """A kind whose rankings come from another system."""

    GUIDE = "../guides/retrievers.md#your-search-engine-as-a-retriever"

    map_documents: Literal["best", "all"] = Field(
        "best",
        description="What a document among the hits counts for. best: its best chunk by BM25. all: all its chunks.",
    )

    @property
    def shares(self) -> str:
        """Nothing is shared: every one is searched on its own."""
        from darklode.pipeline.base.artifacts import key_of

        return f"{self.kind} {key_of(self.identity)}"


class LiveKind(ExternalKind):
    """A kind that asks a search engine or database."""

    top_k: int = Field(
        10_000, gt=0, description="Maximum number of hits to request per query, whatever the depth of a search."
    )
    index_version: str | None = Field(
        None,
        description="Version of the index. Change it to search again. Answers are cached by it; null: by the engine's "
        "own version (opensearch, elasticsearch), else not at all.",
    )

    @property
    def uses_tenant(self) -> bool:
        """Whether requests depend on the tenant."""
        return "{tenant}" in self.model_dump_json()

    @abstractmethod
    def address(self) -> str:
        """Address without password or key, for the cache and messages.

        Raises:
            SettingsError: it is invalid.
        """

    @abstractmethod
    def connect(self, name: str, tenant: str) -> LiveSearch:
        """Open the engine for a tenant's queries; `name` is the retriever's, for messages."""

    def open(self, name: str, corpus: Corpus, root: str | None) -> Retriever:
        """The retriever on a tenant's chunks.

        Args:
            name: name of the retriever.
            corpus: the tenant's chunks.
            root: root of the cache; None: the user's cache folder.
        """
        from darklode.pipeline.base.artifacts import key_of
        from darklode.pipeline.base.memory.store import KeyedStore
        from darklode.pipeline.retrieve.retrievers.external import RANKING_ROWS, ExternalRetriever
        from darklode.pipeline.retrieve.retrievers.external_hits import HitMapper

        tenant = corpus.tenant_chunks.tenant
        owner = f"{self.kind} {self.address()} {key_of(self.identity, tenant if self.uses_tenant else '')[:16]}"
        store = KeyedStore(root, RANKING_ROWS)
        mapper = HitMapper(corpus, self.map_documents)
        return ExternalRetriever(name, self.connect(name, tenant), mapper, self.top_k, store, owner)

    def __call__(self, corpus: Corpus) -> Retriever:
        """The retriever under the name of its kind, with the user's cache folder."""
        return self.open(self.kind, corpus, None)


@dataclass(frozen=True)
class Assembly:
    """What a composite retriever is built from, on a tenant's chunks.

    Attributes:
        name: name of the retriever.
        corpus: the tenant's chunks.
        members: the retrievers named in the kind's `of`, in its order.
        cache: where models' results are kept.
        vectors: device and memory of a search.
    """

    name: str
    corpus: Corpus
    members: tuple[Retriever, ...]
    cache: CacheSettings
    vectors: VectorSearchSettings


class CompositeKind(RetrieverKind):
    """A kind that is made of other retrievers, of a model on this machine, or of both."""

    GUIDE = "../guides/retrievers.md#rerankers-hybrids-sparse-and-multi-vector-models"

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the retrievers that it is made of."""
        return ()

    @property
    def member_depth(self) -> int:
        """Depth to which these are searched, whatever the depth of a search; 0 if there are none."""
        return 0

    @abstractmethod
    def assemble(self, parts: Assembly) -> Retriever:
        """Build the retriever.

        Raises:
            MissingPart: a package or model is missing.
        """

    def fetch(self) -> None:
        """Download the model, if there is one that is not on this machine.

        Raises:
            MissingPart: the download failed.
        """

    @property
    def identity(self) -> dict[str, Any]:
        """See `RetrieverKind`; without the retrievers that it is made of, which have their own."""
        keys = self.decisive()
        keys.pop("of", None)
        return keys

    def __call__(self, _corpus: Corpus) -> Retriever:
        """Not possible: the retrievers in `of` are known by the settings only, see `CompositeBuilder`."""
        raise SettingsError(f"kind {self.kind} needs a name of its own in the section retrievers")


class ModelKind(LocalModel, CompositeKind):
    """A composite kind with a model of sentence-transformers on this machine.

    Attributes:
        MODEL_CLASS: the class that loads the model.
    """

    MODEL_CLASS: ClassVar[ModelClass]

    def fetch(self) -> None:
        from darklode.pipeline.base.models.loading import fetch_model

        fetch_model(self)

    def missing(self) -> list[str]:
        """Missing packages, model or memory, or a model of another class."""
        from darklode.pipeline.base.models.local import missing_for

        return missing_for(self, self.MODEL_CLASS)

    def model_id(self, **facts: object) -> str:
        """Everything that can change what the model computes for a text or pair; owner of its results in the cache.

        Raises:
            MissingPart: the model is not in the local cache, so its revision is unknown.
        """
        from darklode.pipeline.base.models.local import versioned_name
        from darklode.pipeline.retrieve.encoders.port import identity

        tokens = self.max_seq_length or "all"
        return identity(self.MODEL_CLASS, versioned_name(self), tokens=tokens, dtype=self.dtype, **facts)

    @property
    def identity(self) -> dict[str, Any]:
        """See `CompositeKind`; the model by the hash of its files or its commit, wherever it lies."""
        own = {name: value for name, value in super().identity.items() if name not in LocalModel.model_fields}
        return own | {"model": self.model_id()}


def own_retrievers() -> dict[str, RetrieverKind]:
    """Darklode's own kinds that need no settings, with their defaults, by name, BM25 first."""
    kinds: dict[str, type[RetrieverKind]] = {name: RETRIEVERS.load(name) for name in RETRIEVERS.own_kinds()}
    return {name: kind.model_validate({}) for name, kind in kinds.items() if not kind.required()}
