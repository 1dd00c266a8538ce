"""Sources of an index: a run's texts, or a file of vectors. Vectors of both are in the embedding cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Store, key_of
from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.errors import ArtifactError, InputError
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.shards import Shards
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.sharding import Spread
from darklode.pipeline.base.types import Floats, Keys
from darklode.pipeline.index.vector_file import VECTORS_PER_BLOCK, read_numpy, read_parquet
from darklode.pipeline.retrieve.encoders.caching import ensure_cached
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.train.data.encoding import Encoding, prefetch_vectors
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.settings import CacheSettings

ROW_SCHEMA = pa.schema([(name, pa.string()) for name in ("tenant", "text_id", "doc_id", "content_hash")])
TEXT_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("text_id", "doc_id", "title", "heading", "text", "content_hash")]
)


@dataclass(frozen=True)
class StoredVectors:
    """An encoder's cached vectors, truncated to some dimensions and normalized.

    Attributes:
        encoder: encoder of the vectors.
        cache: location and dtype of the cache.
        dimensions: dimensions that vectors are truncated to; None: all.
    """

    encoder: EncoderKind
    cache: CacheSettings
    dimensions: int | None
    _opened: list[Shards] = field(default_factory=list, init=False, repr=False, compare=False)
    """The cached vectors as last opened; opening sorts the keys of all vectors: longer than a small update."""

    def __reduce__(self) -> tuple[type[StoredVectors], tuple[EncoderKind, CacheSettings, int | None]]:
        return StoredVectors, (self.encoder, self.cache, self.dimensions)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a vector."""
        return {"encoder": self.encoder.encoder_id(), "kept": self.cache.vector_dtype, "dimensions": self.dimensions}

    def open(self) -> Shards | None:
        """The cached vectors; None if there are none."""
        return self.memory().open(self.encoder.encoder_id())

    def memory(self) -> EmbeddingCache:
        """The cache."""
        return EmbeddingCache(self.cache.root, self.cache.vector_dtype)

    def blocks(self, hashes: pa.ChunkedArray | pa.Array, rows: int = VECTORS_PER_BLOCK) -> Iterator[tuple[int, Floats]]:
        """Yield position of the first, and unit vectors, shape (b, dimensions), in the order of the hashes.

        Raises:
            ArtifactError: a vector is not in the cache.
        """
        for start in range(0, len(hashes), rows):
            keys = keys_of(hashes[start : start + rows])
            shards, numbers = self._find(keys)
            try:
                vectors = shards.take(numbers)
            except ArtifactError:  # pruned since they were opened, perhaps computed again
                self._opened.clear()
                shards, numbers = self._find(keys)
                vectors = shards.take(numbers)
            yield start, truncate_and_normalize(vectors, self.dimensions)
            shards.release()

    def _find(self, keys: Keys) -> tuple[Shards, NDArray[np.int64]]:
        """The opened vectors, opened again if a key is missing, and the number of each key."""
        for shards in self._opened:
            numbers = shards.find(keys)
            if (numbers >= 0).all():
                return shards, numbers
        reopened = self.open()
        numbers = reopened.find(keys) if reopened else np.full(1, -1)
        if reopened is None or (numbers < 0).any():
            raise ArtifactError(
                f"vectors of {self.encoder.encoder_id()} were pruned while in use; run the command again"
            )
        self._opened[:] = [reopened]
        return reopened, numbers

    def take(self, hashes: pa.ChunkedArray | pa.Array) -> Floats:
        """The vectors of `blocks` in one array."""
        blocks = [block for _, block in self.blocks(hashes)]
        return np.concatenate(blocks) if blocks else np.zeros((0, self.dimensions or 0), np.float32)


def truncate_and_normalize(vectors: Any, dimensions: int | None) -> Floats:
    """Truncate vectors and normalize them to length 1; zero vectors stay zero."""
    cut = np.asarray(vectors[:, :dimensions], np.float32)
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    return np.ascontiguousarray(cut / np.where(lengths > 0, lengths, 1))


def with_tenant(rows: pa.Table, tenant: str) -> pa.Table:
    """Rows of `ROW_SCHEMA` from those without tenant."""
    return rows.add_column(0, "tenant", pa.repeat(tenant, rows.num_rows)).cast(ROW_SCHEMA)


class VectorSource(Protocol):
    """Texts to be indexed."""

    @property
    def tenants(self) -> tuple[str, ...]:
        """Tenants of the texts, ascending."""
        ...

    @property
    def url(self) -> str:
        """URL of the run or file."""
        ...

    @property
    def stored_vectors(self) -> StoredVectors:
        """Vectors of all texts, complete."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a vector."""
        ...

    def content(self) -> str:
        """Hash of everything that is read."""
        ...

    def encode(self, stage: str, spread: Spread) -> None:
        """Compute vectors missing in the cache on the workers, before a stage reads them."""
        ...

    def rows(self) -> pa.Table:
        """Rows of `ROW_SCHEMA`, ascending by tenant and text_id."""
        ...

    def text_tables(self) -> Iterator[pa.Table]:
        """Tables of `TEXT_SCHEMA`, ascending by text_id; a file of vectors has ids only."""
        ...

    def queries(self) -> dict[str, list[str]]:
        """User queries that were not used for training, by tenant; empty for a file of vectors."""
        ...


@dataclass
class RunSource:
    """The texts of a benchmark build or a mined run.

    Attributes:
        source: the run, as a training source.
        tenant: tenant of the texts.
        vectors: their vectors; missing ones are computed before the first is read.
    """

    source: TrainingSource
    tenant: str
    vectors: StoredVectors

    @property
    def tenants(self) -> tuple[str, ...]:
        return (self.tenant,)

    @property
    def identity(self) -> dict[str, Any]:
        return self.vectors.identity

    @property
    def url(self) -> str:
        return self.source.run.store.url

    def content(self) -> str:
        return key_of(self.source.content(), self.tenant)

    def rows(self) -> pa.Table:
        return self._rows

    @cached_property
    def _rows(self) -> pa.Table:
        parts = [piece.select(["chunk_id", "doc_id", "content_hash"]) for piece in self.source.texts(self.tenant)]
        if not parts:
            raise ArtifactError(f"{self.url} has no text of tenant {self.tenant}")
        return with_tenant(pa.concat_tables(parts).rename_columns(ROW_SCHEMA.names[1:]).sort_by("text_id"), self.tenant)

    @cached_property
    def stored_vectors(self) -> StoredVectors:
        shards = self.vectors.open()
        if shards is None or (shards.find(keys_of(self._rows["content_hash"])) < 0).any():
            encoder = Deferred(self.vectors.encoder, self.vectors.cache.root)
            ensure_cached(encoder, self.vectors.memory(), self.source.iterate_hashes(self.tenant))
        return self.vectors

    def encode(self, stage: str, spread: Spread) -> None:
        texts = Encoding(self.source, self.tenant, self.vectors.encoder, self.vectors.cache, stage)
        prefetch_vectors(texts, self._rows["content_hash"], spread)

    def text_tables(self) -> Iterator[pa.Table]:
        for piece in self.source.texts(self.tenant):
            names = ["chunk_id" if name == "text_id" else name for name in TEXT_SCHEMA.names]
            yield piece.select(names).rename_columns(TEXT_SCHEMA.names).cast(TEXT_SCHEMA)

    def queries(self) -> dict[str, list[str]]:
        """Queries of validation and test; all queries if there are none."""
        rows = self.source.queries(self.tenant)
        held_out_rows = rows.filter(pc.not_equal(rows["split"], "train"))
        query_texts: list[str] = (held_out_rows if held_out_rows.num_rows else rows)["text"].to_pylist()
        return {self.tenant: [text for text in dict.fromkeys(query_texts) if text.strip()]}


@dataclass
class TenantSources:
    """The texts of several tenants of a run, for one index; see `RunSource`.

    Attributes:
        sources: each tenant's texts, ascending by tenant; vectors are in the same cache.
    """

    sources: tuple[RunSource, ...]

    @property
    def tenants(self) -> tuple[str, ...]:
        return tuple(source.tenant for source in self.sources)

    @property
    def identity(self) -> dict[str, Any]:
        return self.sources[0].identity

    @property
    def url(self) -> str:
        return self.sources[0].url

    def content(self) -> str:
        return key_of(*(source.content() for source in self.sources))

    def rows(self) -> pa.Table:
        return pa.concat_tables(source.rows() for source in self.sources)

    @cached_property
    def stored_vectors(self) -> StoredVectors:
        by_tenant = [source.stored_vectors for source in self.sources]  # computes what is missing, tenant by tenant
        return by_tenant[0]

    def encode(self, stage: str, spread: Spread) -> None:
        for source in self.sources:
            source.encode(stage, spread)

    def text_tables(self) -> Iterator[pa.Table]:
        for source in self.sources:
            yield from source.text_tables()

    def queries(self) -> dict[str, list[str]]:
        return {tenant: texts for source in self.sources for tenant, texts in source.queries().items()}


def tenant_sources(source: VectorSource, tenant: str | None) -> list[VectorSource]:
    """The source of each tenant, or of one."""
    parts: list[VectorSource] = [*source.sources] if isinstance(source, TenantSources) else [source]
    return [part for part in parts if tenant in {None, part.tenants[0]}]


@dataclass
class FileSource:
    """A file of vectors: Parquet with text_id and vector (and doc_id), or a NumPy array, whose ids are row numbers.

    Vectors are copied to the embedding cache under a hash of their values.

    Attributes:
        url: a .parquet or .npy file, or the s3:// URL of a Parquet file.
        tenant: tenant of the texts.
        vectors: encoder and cache of the vectors.
    """

    url: str
    tenant: str
    vectors: StoredVectors

    @property
    def tenants(self) -> tuple[str, ...]:
        return (self.tenant,)

    @property
    def identity(self) -> dict[str, Any]:
        return self.vectors.identity

    @cached_property
    def stored_vectors(self) -> StoredVectors:
        self.rows()
        return self.vectors

    def content(self) -> str:
        store, name = self._place()
        version = store.version(name)
        return key_of(self.url, self._rows_hash() if version is None else version)

    def _rows_hash(self) -> str:
        """Hash of all ids and vectors, for storage without file versions."""
        digest = sha256()
        for row in zip(*(self._rows[name].to_pylist() for name in ROW_SCHEMA.names[1:]), strict=True):
            digest.update(json.dumps(row).encode())
        return digest.hexdigest()

    def rows(self) -> pa.Table:
        return self._rows

    @cached_property
    def _rows(self) -> pa.Table:
        parts = [self._cache_rows(ids, documents, vectors) for ids, documents, vectors in self._read()]
        file_rows = pa.concat_tables([ROW_SCHEMA.empty_table(), *parts]).sort_by("text_id")
        if not file_rows.num_rows:
            raise InputError(f"{self.url} contains no vectors")
        if len(pc.unique(file_rows["text_id"])) < file_rows.num_rows:
            counts = pc.value_counts(file_rows["text_id"].combine_chunks()).to_pylist()
            raise InputError(
                f"{self.url}: text_id {max(counts, key=lambda count: count['counts'])['values']} occurs twice"
            )
        return file_rows

    def encode(self, stage: str, spread: Spread) -> None:
        """Nothing to do: reading the file fills the cache."""

    def text_tables(self) -> Iterator[pa.Table]:
        rows, none = self.rows(), pa.nulls(self.rows().num_rows, pa.string())
        columns = {name: rows[name] if name in ROW_SCHEMA.names else none for name in TEXT_SCHEMA.names}
        yield pa.table(columns, schema=TEXT_SCHEMA)

    def queries(self) -> dict[str, list[str]]:
        return {}

    def _place(self) -> tuple[Store, str]:
        folder, _, name = self.url.rpartition("/")
        store = Store(folder or ("." if not self.url.startswith("/") else "/"))
        if store.size(name) is None:
            raise InputError(f"{self.url} is neither a run nor a file of vectors (.npy, .parquet)")
        return store, name

    def _read(self) -> Iterator[tuple[pa.Array, pa.Array, Floats]]:
        store, name = self._place()
        if name.endswith(".npy"):
            if store.local is None:
                raise InputError(f"{self.url}: .npy files must be local; use Parquet on S3")
            yield from read_numpy(Path(self.url).expanduser(), self.vectors.cache.vector_dtype)
            return
        with pq.ParquetFile(store.path(name), filesystem=store.filesystem) as file:
            missing_columns = {"text_id", "vector"} - set(file.schema_arrow.names)
            if missing_columns:
                raise InputError(f"{self.url} has no column {' and '.join(sorted(missing_columns))}")
            yield from read_parquet(file.iter_batches(VECTORS_PER_BLOCK), self.url, self.vectors.cache.vector_dtype)

    def _cache_rows(self, ids: pa.Array, documents: pa.Array, vectors: Floats) -> pa.Table:
        hashes = _hashes(vectors)
        memory, encoder = self.vectors.memory(), self.vectors.encoder.encoder_id()
        new = memory.missing(encoder, hashes)
        new = new[np.unique(keys_of(hashes)[new], axis=0, return_index=True)[1]] if len(new) else new
        if len(new):
            memory.append(encoder, hashes.take(pa.array(new)), vectors[new])
        return with_tenant(pa.table({"text_id": ids, "doc_id": documents, "content_hash": hashes}), self.tenant)


def _hashes(vectors: Floats) -> pa.Array:
    """Hash of each vector's values, 32 hex digits."""
    rows = np.ascontiguousarray(vectors.astype("<f4"))
    blobs = pa.Array.from_buffers(pa.binary(rows[:1].nbytes), len(rows), [None, pa.py_buffer(rows)])
    with scratch() as connection:
        connection.register(
            "vectors", pa.table({"position": pa.array(np.arange(len(rows))), "row": blobs.cast(pa.binary())})
        )
        hashes = connection.sql("SELECT left(sha256(row), 32) AS hash FROM vectors ORDER BY position").to_arrow_table()
    return hashes["hash"].combine_chunks()
