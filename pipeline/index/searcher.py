"""Search a finished index by texts or vectors: open the folder once, then call `search`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, Self
from weakref import finalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.types import Facts, Floats, Ints
from darklode.pipeline.index.recall import IndexOpening, open_searcher
from darklode.pipeline.index.record import read_record
from darklode.pipeline.index.search import IndexSearcher
from darklode.pipeline.index.source import truncate_and_normalize
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.port import ModelEncoder
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.compatibility import ENCODER_FACTS
from darklode.schemas.kinds import OfKind
from darklode.schemas.pooling import ENCODERS, EncoderSettings
from darklode.schemas.serving_tables import INDEX_FILES, INDEX_QUERIES, INDEXED_TEXTS


@dataclass(frozen=True)
class SearchResults:
    """Result lists, best first.

    Attributes:
        rows: rows of `texts`, shape (n_queries, depth); -1 if fewer were found.
        scores: cosines by codes or by stored vectors; same shape, minus infinity if there is no row.
        texts: the indexed texts.
    """

    rows: Ints
    scores: Floats
    texts: pa.Table

    def ids(self, query: int) -> list[str]:
        """The text_ids found for a query, best first."""
        row_numbers = self.rows[query][self.rows[query] >= 0]
        ids_found: list[str] = self.texts["text_id"].take(pa.array(row_numbers)).to_pylist()
        return ids_found


class VectorSearcher:
    """An open folder of `darklode index`, loaded into memory or memory-mapped; nothing is written.

    Args:
        url: folder or s3:// prefix.

    Raises:
        ArtifactError: there is no index, or the build or an update is unfinished.
        MissingPart: faiss is not installed.
    """

    def __init__(self, url: str) -> None:
        run = Run(url, untouched=True)
        self.url = run.store.url
        self.facts: Facts = read_record(run.store)
        tables = run.tables(INDEXED_TEXTS.name, INDEX_FILES.name, INDEX_QUERIES.name)
        files = tables.read(INDEX_FILES.name).to_pylist()
        if tables.content(INDEXED_TEXTS.name) != self.facts["texts"] or files != self.facts["files"]:
            raise ArtifactError(f"{self.url} is unfinished: run its `darklode index` command again")
        scratch = mkdtemp(prefix="darklode-index-")
        self.close = finalize(self, rmtree, scratch, ignore_errors=True)
        """Delete fetched files; also called when the searcher is garbage collected."""
        opening = IndexOpening(run.store, self.facts["built"], self.facts["rerank"], self.facts["dimensions"])
        self._finder: IndexSearcher = open_searcher(opening, tables, Path(scratch))
        self.texts: pa.Table = tables.read(INDEXED_TEXTS.name).combine_chunks()
        # The recorded queries have the encoder's full dimensions, even if the index truncates vectors.
        self._encoder_dimensions = len(tables.read(INDEX_QUERIES.name, ["vector"])["vector"][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def tenants(self) -> tuple[str, ...]:
        """Tenants of the indexed texts, ascending."""
        return tuple(self.facts["tenants"])

    def resolve_tenant(self, tenant: str | None) -> str:
        """The tenant to search; without a name, the only one.

        Raises:
            DoesNotFit: the index has no such tenant, or several and none is given.
        """
        if tenant is None and len(self.tenants) == 1:
            return self.tenants[0]
        if tenant not in self.tenants:
            problem = "a tenant is required" if tenant is None else f"there is no tenant {tenant}"
            raise DoesNotFit(f"{self.url}: {problem}; choose from {', '.join(self.tenants)}")
        return tenant

    @cached_property
    def encoder(self) -> EncoderKind:
        """The encoder of the vectors."""
        settings = OfKind(ENCODERS, EncoderSettings)._validate(self.facts["encoder"]["settings"])
        return as_kind(settings, EncoderKind)

    @cached_property
    def _model(self) -> ModelEncoder:
        return self.encoder.load()

    def encode(self, texts: Sequence[str], adapter: Adapter | None = None) -> Floats:
        """Query vectors, shape (len(texts), dimensions of the encoder); zero for blank queries.

        Args:
            texts: the queries.
            adapter: encodes them instead of the base encoder.
        """
        if adapter:
            return adapter.encode(texts)
        vectors = np.array(self._model.encode_queries(list(texts)), np.float32)
        vectors[[not text.strip() for text in texts]] = 0
        return vectors

    def require_same_encoder(self, adapter: Adapter) -> None:
        """Check that an adapter's query vectors match the indexed vectors.

        Raises:
            DoesNotFit: its base encoder differs from the recorded one (the message names the difference), or the index
                has none of its tenants.
        """
        base, recorded = adapter.facts["base"], self.facts["encoder"]
        for name in (field for field in ENCODER_FACTS if field in recorded):
            if base[name] != recorded[name]:
                raise DoesNotFit(
                    f"{adapter.store.url} has another base encoder than {self.url}: {name} {base[name] or 'none'}, "
                    f"recorded {recorded[name] or 'none'}"
                )
        if adapter.base.encoder_id() != recorded["id"]:
            raise DoesNotFit(
                f"{adapter.store.url} is based on {adapter.base.encoder_id()}, {self.url} on {recorded['id']}"
            )
        if {*self.tenants}.isdisjoint(adapter.tenants):
            raise DoesNotFit(
                f"{adapter.store.url} is for tenant {', '.join(adapter.tenants)}, {self.url} has "
                f"{', '.join(self.tenants)}; train an adapter for one of these"
            )

    def search(
        self,
        queries: Sequence[str] | Floats,
        depth: int = 10,
        adapter: Adapter | None = None,
        tenant: str | None = None,
    ) -> SearchResults:
        """The best texts of each query; blank queries and zero vectors have no results.

        Args:
            queries: texts; or vectors by the encoder or an adapter of it, in the dimensions of the encoder or of the
                index. They are truncated and normalized as those of the index.
            depth: length of the lists.
            adapter: encodes texts instead of the base encoder; only for its own tenants.
            tenant: tenant whose texts are searched; required if the index has several.

        Raises:
            DoesNotFit: the vectors have other dimensions, a number is not finite, or the index has no such tenant, or
                several and none is given, or the adapter is not for the tenant.
        """
        own_tenant = self.resolve_tenant(tenant)
        if adapter is not None:
            adapter.require_tenant(own_tenant)
        query_vectors = queries if isinstance(queries, np.ndarray) else self.encode(queries, adapter)
        return self.search_by_tenant(query_vectors, [own_tenant] * len(query_vectors), depth)

    def search_by_tenant(self, queries: Floats, tenants: Sequence[str], depth: int = 10) -> SearchResults:
        """As `search`, each query among the texts of its own tenant.

        Args:
            queries: vectors, as for `search`.
            tenants: tenant of each query.
            depth: length of the lists.

        Raises:
            DoesNotFit: as for `search`.
        """
        self._check_queries(queries)
        own_tenants = [self.resolve_tenant(tenant) for tenant in tenants]
        vectors = truncate_and_normalize(queries, self.facts["dimensions"])
        numbers, scores = self._finder.find_by_tenant(vectors, own_tenants, depth, self.facts["effort"])
        blank = ~vectors.any(axis=1)
        numbers[blank], scores[blank] = -1, -np.inf
        rows = self._rows(numbers)
        self._check_tenants(rows, own_tenants)
        return SearchResults(rows, scores, self.texts)

    def _check_tenants(self, rows: Ints, tenants: Sequence[str]) -> None:
        """Check that no query gets another tenant's text.

        Raises:
            ArtifactError: one would get it; the index contradicts its table of texts.
        """
        if len(self.tenants) == 1:
            return
        query, column = np.nonzero(rows >= 0)
        names = self.texts["tenant"].take(pa.array(rows[query, column]))
        expected = pa.array(tenants, pa.string()).take(pa.array(query))
        if not pc.all(pc.equal(names, expected), min_count=0).as_py():
            raise ArtifactError(f"{self.url} is damaged: a search found another tenant's text; build it again")

    def _check_queries(self, vectors: Floats) -> None:
        index_dim = self.facts["dimensions"]
        encoder_dim = self._encoder_dimensions
        if vectors.ndim != 2 or vectors.shape[1] not in (index_dim, encoder_dim):
            expected = f"{index_dim} numbers" if index_dim == encoder_dim else f"{index_dim} or {encoder_dim} numbers"
            raise DoesNotFit(
                f"{self.url}: expected query vectors of {expected}, got shape {vectors.shape}; "
                "the queries are encoded by another encoder than the texts"
            )
        broken = ~np.isfinite(vectors).all(axis=1)
        if broken.any():
            raise DoesNotFit(f"query vector {int(broken.argmax()) + 1} has a NaN or infinite number; encode it again")

    def _rows(self, numbers: Ints) -> Ints:
        sorted_numbers, order = self._number_order
        index = np.minimum(np.searchsorted(sorted_numbers, numbers), len(sorted_numbers) - 1)
        return np.where((numbers >= 0) & (sorted_numbers[index] == numbers), order[index], -1)

    @cached_property
    def _number_order(self) -> tuple[Any, Any]:
        """Text numbers in ascending order, and their rows."""
        numbers = self.texts["number"].to_numpy()
        order = np.argsort(numbers)
        return numbers[order], order
