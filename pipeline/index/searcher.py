"""The way in for whoever searches a finished index: a folder is opened once, then texts or vectors are asked for."""

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
    """Lists of texts, best first.

    Attributes:
        rows: rows of `Searcher.texts`, shape (n_queries, depth); -1 where fewer were found.
        scores: cosines, of codes or of stored vectors; the same shape, minus infinity where there is no row.
        texts: those that the rows are of.
    """

    rows: Ints
    scores: Floats
    texts: pa.Table

    def ids(self, query: int) -> list[str]:
        """A query's text_ids, best first."""
        row_numbers = self.rows[query][self.rows[query] >= 0]
        ids_found: list[str] = self.texts["text_id"].take(pa.array(row_numbers)).to_pylist()
        return ids_found


class VectorSearcher:
    """A folder of `darklode index`, open. What it reads lies in memory or is mapped; nothing is written.

    Args:
        url: the folder or prefix.

    Raises:
        ArtifactError: it holds no finished index, or an update that was not finished.
        MissingPart: faiss is not installed.
    """

    def __init__(self, url: str) -> None:
        run = Run(url, untouched=True)
        self.url = run.store.url
        self.facts: Facts = read_record(run.store)
        tables = run.tables(INDEXED_TEXTS.name, INDEX_FILES.name, INDEX_QUERIES.name)
        files = tables.read(INDEX_FILES.name).to_pylist()
        if tables.content(INDEXED_TEXTS.name) != self.facts["texts"] or files != self.facts["files"]:
            raise ArtifactError(f"{self.url} was not finished: run its `darklode index` command again")
        scratch = mkdtemp(prefix="darklode-index-")
        self.close = finalize(self, rmtree, scratch, ignore_errors=True)
        """Lets go of what was fetched; called when the searcher goes, too."""
        opening = IndexOpening(run.store, self.facts["built"], self.facts["rerank"], self.facts["dimensions"])
        self._finder: IndexSearcher = open_searcher(opening, tables, Path(scratch))
        self.texts: pa.Table = tables.read(INDEXED_TEXTS.name).combine_chunks()
        # Recall's queries have all numbers of the encoder, also where the index has fewer.
        self._encoder_dimensions = len(tables.read(INDEX_QUERIES.name, ["vector"])["vector"][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def tenant(self) -> str:
        """Whose texts it holds."""
        return str(self.facts["tenant"])

    @cached_property
    def encoder(self) -> EncoderKind:
        """The encoder that the vectors are by."""
        settings = OfKind(ENCODERS, EncoderSettings)._validate(self.facts["encoder"]["settings"])
        return as_kind(settings, EncoderKind)

    @cached_property
    def _model(self) -> ModelEncoder:
        return self.encoder.load()

    def encode(self, texts: Sequence[str], adapter: Adapter | None = None) -> Floats:
        """Vectors of queries, shape (len(texts), dimensions of the encoder); of blank ones zero.

        Args:
            texts: the queries.
            adapter: encodes them in the place of the base.
        """
        if adapter:
            return adapter.encode(texts)
        vectors = np.array(self._model.encode_queries(list(texts)), np.float32)
        vectors[[not text.strip() for text in texts]] = 0
        return vectors

    def require_same_encoder(self, adapter: Adapter) -> None:
        """Refuse an adapter whose queries do not go with these vectors.

        Raises:
            DoesNotFit: it was made from an encoder that differs from the recorded one (the message names in what), or
                for another tenant.
        """
        base, recorded = adapter.facts["base"], self.facts["encoder"]
        for name in (field for field in ENCODER_FACTS if field in recorded):
            if base[name] != recorded[name]:
                raise DoesNotFit(
                    f"{adapter.store.url} is made from another encoder than {self.url}: {name} {base[name]}, and "
                    f"{recorded[name]} was recorded"
                )
        if adapter.base.encoder_id() != recorded["id"]:
            raise DoesNotFit(
                f"{adapter.store.url} is made from {adapter.base.encoder_id()}, and {self.url} by {recorded['id']}"
            )
        if self.tenant not in adapter.tenants:
            raise DoesNotFit(f"{adapter.store.url} is the tenant {adapter.tenant}'s, and {self.url} is {self.tenant}'s")

    def search(self, queries: Sequence[str] | Floats, depth: int = 10, adapter: Adapter | None = None) -> SearchResults:
        """The best texts of each query; one that is blank, or whose vector is zero, finds none.

        Args:
            queries: texts, or their vectors by the encoder or by an adapter of it, shape (n_queries, numbers), as long
                as the encoder's or as the index's; these are cut and scaled as the index's are.
            depth: of the lists.
            adapter: encodes texts in the place of the base.

        Raises:
            DoesNotFit: the vectors are neither as long as the encoder's nor as the index's, or a number is not finite.
        """
        query_vectors = queries if isinstance(queries, np.ndarray) else self.encode(queries, adapter)
        self._check_queries(query_vectors)
        vectors = truncate_and_normalize(query_vectors, self.facts["dimensions"])
        numbers, scores = self._finder.find(vectors, depth, self.facts["effort"])
        blank = ~vectors.any(axis=1)
        numbers[blank], scores[blank] = -1, -np.inf
        return SearchResults(self._rows(numbers), scores, self.texts)

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
        """Numbers ascending, and their rows."""
        numbers = self.texts["number"].to_numpy()
        order = np.argsort(numbers)
        return numbers[order], order
