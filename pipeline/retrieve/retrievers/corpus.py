"""One tenant's chunks, and the indexes and fitted vectors that several retrievers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.base.types import Ints
from darklode.pipeline.retrieve.best_chunks import DocumentChunks
from darklode.pipeline.retrieve.encoders.caching import HashedTexts
from darklode.pipeline.retrieve.encoders.lsa import TermVectors, fit_character_map
from darklode.pipeline.retrieve.encoders.ppmi import fit_word_vectors
from darklode.pipeline.retrieve.retrievers.bm25 import FIXED_SETTINGS, Bm25, Index, build_index
from darklode.pipeline.retrieve.retrievers.bm25_index import Bm25Indexes
from darklode.pipeline.retrieve.retrievers.member_lists import ListedRetriever, MemberLists, member_key
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.pipeline.retrieve.retrievers.rank_bm25 import RankBm25
from darklode.pipeline.retrieve.retrievers.topk import fixed_point
from darklode.schemas.pooling import Bm25Settings

_BLOCK_CHUNKS = 8_192  # chunks encoded at a time: 10 MB at 300 dimensions


class HashedChunks(Protocol):
    """Content hashes and texts of chunks, in chunk order; encoders cache vectors by content hash."""

    def hashes(self) -> pa.StringArray:
        """Each chunk's content hash."""

    def iterate_hashes(self) -> Iterator[HashedTexts]:
        """Yield content hashes and texts in batches; each call starts at the first chunk."""


class Corpus:
    """One tenant's chunks. Indexes and fitted vectors are computed at first use and kept.

    Args:
        batches: function that yields the chunks' texts in batches, in chunk order; a text is
            "title\\nheading\\ntext".
        n_chunks: number of chunks, at least 1.
        scratch: existing folder for the memory-mapped vectors; no other process may write to it.
        indexes: stored BM25 indexes of this corpus; None: indexes are built and not stored.
        hashed: the same chunks with content hashes, which neural encoders need; None: no such encoders.
        lists: where the rankings of retrievers that others are made of are kept; None: nowhere.
    """

    def __init__(
        self,
        batches: Callable[[], Iterator[Sequence[str]]],
        n_chunks: int,
        scratch: Path,
        indexes: Bm25Indexes | None = None,
        hashed: HashedChunks | None = None,
        lists: MemberLists | None = None,
    ) -> None:
        self.batches = batches
        self.n_chunks = n_chunks
        self.scratch = scratch
        self._hashed = hashed
        self._indexes = indexes
        self._bm25: dict[Bm25Settings, Retriever] = {}
        self._lists = lists
        self._listed: dict[str, ListedRetriever] = {}

    def open(self, build: Callable[[Corpus], Retriever]) -> Retriever:
        """Build a retriever; rankings that other retrievers need are kept."""
        retriever = self.member(build)
        if isinstance(retriever, ListedRetriever):
            retriever.prepare()
        return retriever

    def member(self, build: Callable[[Corpus], Retriever]) -> Retriever:
        """A retriever that another one is made of; it is not built if its rankings are kept."""
        if self._lists is None or not self._lists.depths:
            return build(self)
        key = member_key(build)
        if key not in self._lists.depths:
            return build(self)
        if key not in self._listed:
            self._listed[key] = ListedRetriever(
                lambda: build(self), self._lists.folder, key, self.n_chunks, self._lists.depths[key]
            )
        return self._listed[key]

    def hashed_texts(self, rows: Ints) -> HashedTexts:
        """Content hashes and texts of some chunks; reads the chunks up to the last of them.

        Args:
            rows: ascending, each once.
        """
        hashes, texts, start = [pa.array([], pa.string())], [pa.array([], pa.string())], 0
        for block_hashes, block_texts in self.hashed_chunks.iterate_hashes():
            first, end = np.searchsorted(rows, [start, start + len(block_hashes)])
            positions = pa.array(rows[first:end] - start)
            hashes.append(block_hashes.take(positions))
            texts.append(block_texts.take(positions))
            start += len(block_hashes)
            if end == len(rows):
                break
        return pa.concat_arrays(hashes), pa.concat_arrays(texts)

    @property
    def hashed_chunks(self) -> HashedChunks:
        """The chunks by content hash."""
        if self._hashed is None:
            raise ValueError("this corpus was made without content hashes, which an encoder needs")
        return self._hashed

    @property
    def tenant_chunks(self) -> TenantChunks:
        """The chunks with their ids and their run's tables."""
        if not isinstance(self._hashed, TenantChunks):
            raise ValueError("this corpus was made without chunk ids, which hits of another system need")
        return self._hashed

    @cached_property
    def document_chunks(self) -> DocumentChunks:
        """The rows of each document's chunks."""
        return DocumentChunks(self.tenant_chunks.doc_ids)

    @cached_property
    def terms(self) -> TermSpace:
        """The corpus's terms and counts: English stems without stop words.

        Raises:
            ValueError: the batches hold another number of chunks than `n_chunks`.
        """
        return self._count(Analyzer())

    def bm25(self, settings: Bm25Settings) -> Retriever:
        """BM25 with these settings; equal settings share one index.

        Raises:
            ValueError: the batches hold another number of chunks than `n_chunks`.
            SettingsError: there is no such stemmer.
            MissingPart: the engine is not installed.
        """
        if settings not in self._bm25:
            self._bm25[settings] = self._build_bm25(settings)
        return self._bm25[settings]

    @property
    def fixed_bm25(self) -> Bm25:
        """BM25 with `FIXED_SETTINGS`."""
        bm25 = self.bm25(FIXED_SETTINGS)
        assert isinstance(bm25, Bm25)  # their engine is bm25s
        return bm25

    @cached_property
    def seeds(self) -> Seeds:
        """The fixed BM25, whose best chunks the feedback retrievers use."""
        return Seeds(self.fixed_bm25)

    def _build_bm25(self, settings: Bm25Settings) -> Retriever:
        analyzer = Analyzer(settings.stemmer, settings.stop_words)
        if settings.engine == "rank_bm25":
            return RankBm25(self.batches(), analyzer, settings)

        def build() -> Index:
            return build_index(self._count_terms(analyzer, settings), settings)

        return Bm25.from_index(self._indexes.get(settings, build) if self._indexes else build(), analyzer)

    def _count_terms(self, analyzer: Analyzer, settings: Bm25Settings) -> TermSpace:
        is_default = (settings.stemmer, settings.stop_words) == (FIXED_SETTINGS.stemmer, FIXED_SETTINGS.stop_words)
        return self.terms if is_default else self._count(analyzer)

    def _count(self, analyzer: Analyzer) -> TermSpace:
        terms = TermSpace(self.batches(), analyzer)
        if terms.n_chunks != self.n_chunks:
            raise ValueError(
                f"n_chunks is {self.n_chunks}, the batches held {terms.n_chunks} texts; pass the true number"
            )
        return terms

    @cached_property
    def word_vectors(self) -> NDArray[np.float32]:
        """PPMI vectors of the frequent terms, shape (len(terms.frequent), at most 300)."""
        return fit_word_vectors(self.terms, 300)

    @cached_property
    def character_map(self) -> NDArray[np.float32]:
        """Character-LSA vectors of the frequent terms, shape (len(terms.frequent), at most 300)."""
        return fit_character_map(self.terms, 300)

    def vectors(self, encoder: TermVectors) -> NDArray[np.int16]:
        """Fixed-point vectors of all chunks by `encoder`, shape (n_chunks, dimensions), memory-mapped."""
        counts = self.terms.counts
        starts = range(0, self.n_chunks, _BLOCK_CHUNKS)
        blocks = (encoder.encode_counts(counts[start : start + _BLOCK_CHUNKS]) for start in starts)
        path = self.scratch / f"{encoder.encoder_id.replace(':', '-')}.npy"
        return store_vectors(blocks, self.n_chunks, encoder.dimensions, path)


class Seeds(Retriever):
    """A retriever that caches its hits, because several feedback retrievers search the same queries.

    All hits stay in memory: use it for a few chunks per query only.
    """

    def __init__(self, retriever: Retriever) -> None:
        self.name = retriever.name
        self._retriever = retriever
        self._lists: dict[tuple[tuple[str, ...], int], Hits] = {}

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        key = (tuple(queries), depth)
        if key not in self._lists:
            self._lists[key] = self._retriever.search(queries, depth)
        return self._lists[key]


def store_vectors(blocks: Iterable[NDArray[Any]], n_chunks: int, dimensions: int, path: Path) -> NDArray[np.int16]:
    """Write blocks of chunk vectors to `path` as fixed-point numbers (2 bytes each) and memory-map them read-only.

    Raises:
        ValueError: the blocks do not have `n_chunks` rows in total.
    """
    part = path.with_suffix(".part")
    vectors = np.lib.format.open_memmap(part, mode="w+", dtype=np.int16, shape=(n_chunks, dimensions))
    n_written = 0
    for block in blocks:
        if n_written + len(block) > n_chunks:
            raise ValueError(f"{path}: more than {n_chunks} chunks arrived; give each chunk once, in order")
        vectors[n_written : n_written + len(block)] = fixed_point(block)
        n_written += len(block)
    if n_written < n_chunks:
        raise ValueError(f"{path}: {n_written} of {n_chunks} chunks arrived; give each chunk once, in order")
    vectors.flush()
    part.replace(path)  # processes that have mapped an older file keep its content
    return np.asarray(np.load(path, mmap_mode="r"))
