"""Index files: train on a sample, add vectors block by block; update removes and adds vectors without training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Store, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.sharding import Pieces, Spread, here
from darklode.pipeline.base.types import Bytes, Ints
from darklode.pipeline.index.faiss_io import codebook_of, from_bytes, is_member, numbers_in, one_thread, to_bytes
from darklode.pipeline.index.kinds import IndexKind
from darklode.pipeline.index.shard import VectorShard, make_shards
from darklode.pipeline.index.source import StoredVectors, VectorSource
from darklode.pipeline.index.stored_vectors import SCALE_BYTES, pack_vectors
from darklode.schemas.serving import INDEXES, IndexSettings
from darklode.schemas.serving_tables import INDEX_FILES, INDEXED_TEXTS

INDEX_STAGE = Stage("index", 2, (INDEXED_TEXTS.name,), (INDEX_FILES.name,))

INDEX_FILE, STORED_FOLDER = "index.faiss", "stored"
CODEBOOK_FACT, KIND_FACT, CODE_BYTES_FACT = "codebook", "kind", "code bytes"
"""Facts of the stage: id of the codebook, index kind that was built, bytes per vector without its number."""

MAX_STORED_FILE_BYTES = 1 << 29
"""Maximum size of a file of stored vectors. Large, because rescoring is fastest with a single file."""


@dataclass(frozen=True)
class IndexLocation:
    """Destination of the index files.

    Attributes:
        store: the folder or prefix.
        stores: whether vectors are stored for rescoring, if the index kind is lossy.
    """

    store: Store
    stores: bool

    @property
    def identity(self) -> dict[str, Any]:
        """What the files depend on; the location is not part of it."""
        return {"stores": self.stores}


def choose_kind(settings: IndexSettings, total: int) -> IndexKind:
    """The index kind to build; `flat` if there are too few vectors to train the configured one."""
    configured = as_kind(settings, IndexKind)
    flat: IndexKind = INDEXES.load("flat")()
    return configured if total >= configured.MIN_VECTORS else flat


@dataclass(frozen=True)
class CodingShard(VectorShard):
    """A shard of vectors to be encoded.

    Attributes:
        store: contains the trained index under `progress`.
    """

    store: Store


def build_files(  # noqa: PLR0913 (a stage: tables, settings and ports)
    tables: Tables,
    output: Output,
    settings: IndexSettings,
    source: VectorSource,
    location: IndexLocation,
    spread: Spread = here,
    *,
    seed: int,
) -> None:
    """Train the index on a sample and add all vectors.

    Args:
        tables: `indexed_texts`.
        output: receives `index_files`.
        settings: settings of the index kind.
        source: the vectors.
        location: receives the files.
        spread: runs the encoding on shards, for kinds that can encode outside the index.
        seed: random seed of the sample.
    """
    texts = tables.read(INDEXED_TEXTS.name, ["content_hash", "number"])
    hashes, numbers = texts["content_hash"], texts["number"].to_numpy()
    kind = choose_kind(settings, len(numbers))
    sample_rows = np.sort(np.random.default_rng(seed).permutation(len(numbers))[: settings.train_size])
    with one_thread():
        index = kind.train(source.stored_vectors.take(hashes.take(pa.array(sample_rows))), len(numbers))
        if spread is not here and kind.ENCODES_STANDALONE:
            pieces = _encode_on_shards(
                tables, source.stored_vectors, location.store, index, spread, output.unit_key("", codebook_of(index))
            )
            kind.add_codes(index, _number_codes(pieces, numbers, output))
        else:
            _add(index, source, hashes, numbers, output)
    location.store.delete_folder(STORED_FOLDER)
    files = _store(location.store, source, hashes, numbers) if location.stores and kind.LOSSY else []
    _finish(location.store, output, index, kind, files)
    output.count(FunnelStep("index", "texts", len(numbers), "vectors", index.ntotal))


def _encode_on_shards(
    tables: Tables, stored_vectors: StoredVectors, store: Store, index: Any, spread: Spread, basis: str
) -> Iterator[pa.Table]:
    store.write(_training_key(basis), to_bytes(index))
    shards = [
        CodingShard(**vars(shard), store=store)
        for shard in make_shards(tables, stored_vectors, INDEX_STAGE.name, basis, spread.places)
    ]
    return chain.from_iterable(spread(encode_shard, shards))


def encode_shard(shard: CodingShard) -> Pieces:
    """Yield the codes of each block of a shard."""
    name = _training_key(shard.basis)
    index = from_bytes(shard.store.read(name) or b"", shard.store.path(name))
    with one_thread():
        for block in shard.blocks():
            codes = index.sa_encode(block)
            code_type, data = pa.binary(codes.shape[1]), pa.py_buffer(codes)
            yield pa.table({"code": pa.FixedSizeBinaryArray.from_buffers(code_type, len(codes), [None, data])})


def _training_key(basis: str) -> str:
    return f"progress/{INDEX_STAGE.name}/{basis}.faiss"


def _number_codes(pieces: Iterable[pa.Table], numbers: Ints, output: Output) -> Iterator[tuple[Bytes, Ints]]:
    done = 0
    for piece in pieces:
        codes = piece["code"].combine_chunks()
        flat = np.frombuffer(codes.buffers()[1], np.uint8)[: len(codes) * codes.type.byte_width]
        yield flat.reshape(len(codes), -1), numbers[done : done + len(codes)]
        done += len(codes)
        output.progress(done, len(numbers))


def update_files(
    tables: Tables, output: Output, source: VectorSource, location: IndexLocation, *, kind: str, trained: str
) -> None:
    """Remove and add vectors without training; resumable, because it compares with the numbers in the index file.

    Args:
        tables: `indexed_texts`.
        output: receives `index_files`.
        source: the vectors.
        location: has the files, and receives the updated ones.
        kind: index kind that was built.
        trained: id of the codebook in use.

    Raises:
        ArtifactError: the files are missing or damaged, or have another codebook.
    """
    texts = tables.read(INDEXED_TEXTS.name, ["content_hash", "number"])
    numbers, index_kind = texts["number"].to_numpy(), INDEXES.load(kind)()
    index = open_index(location.store)
    if codebook_of(index) != trained:
        raise ArtifactError(
            f"{location.store.path(INDEX_FILE)} has another codebook than {trained}; build the index again"
        )
    indexed_numbers = numbers_in(index)
    removed = indexed_numbers[~is_member(indexed_numbers, numbers)]
    added = np.flatnonzero(~is_member(numbers, indexed_numbers))
    added = added[np.argsort(numbers[added])]
    with one_thread():
        if len(removed) and index_kind.SUPPORTS_REMOVAL:
            index.remove_ids(removed)
        _add(index, source, texts["content_hash"].take(pa.array(added)), numbers[added], output)
    before = output.previous_tables(INDEX_FILES.name)
    files = before.read(INDEX_FILES.name).to_pylist() if before else []
    added_numbers = {*numbers[added].tolist()}
    files = [row for row in files if row["file"] != INDEX_FILE and _first_number(row["file"]) not in added_numbers]
    if location.stores and index_kind.LOSSY and len(added):
        files += _store(location.store, source, texts["content_hash"].take(pa.array(added)), numbers[added])
    _finish(location.store, output, index, index_kind, files)
    output.facts["removed"], output.facts["added"] = len(removed), len(added)
    output.count(FunnelStep("index", "texts", len(numbers), "vectors", index.ntotal))


def open_index(store: Store) -> Any:
    """The index in a folder.

    Raises:
        ArtifactError: it is missing or damaged.
    """
    data = store.read(INDEX_FILE)
    if data is None:
        raise ArtifactError(f"{store.url} contains no index; build one with `darklode index RUN --encoder … --out …`")
    return from_bytes(data, store.path(INDEX_FILE))


def invalidate_if_damaged(run: Run) -> None:
    """Delete the stage's manifest if a file is missing or has another size, so that the stage runs again."""
    if run.manifest(INDEX_STAGE) is None:
        return
    rows = run.tables(INDEX_FILES.name).read(INDEX_FILES.name).to_pylist()
    if any(run.store.size(row["file"]) != row["bytes"] for row in rows):
        run.store.delete(f"manifests/{INDEX_STAGE.name}.json")


def _add(index: Any, source: VectorSource, hashes: pa.ChunkedArray, numbers: Ints, output: Output) -> None:
    for start, block in source.stored_vectors.blocks(hashes):
        index.add_with_ids(block, numbers[start : start + len(block)])
        output.progress(start + len(block), len(numbers))


def _store(store: Store, source: VectorSource, hashes: pa.ChunkedArray, numbers: Ints) -> list[dict[str, Any]]:
    """Write vectors with consecutive numbers."""
    assert (np.diff(numbers) == 1).all(), "stored vectors need consecutive numbers"
    files, width = [], source.stored_vectors.take(hashes[:1]).shape[1]
    rows_per_file = MAX_STORED_FILE_BYTES // (width + SCALE_BYTES)
    for start in range(0, len(numbers), rows_per_file):
        file_hashes = hashes[start : start + rows_per_file]
        data = pack_vectors((block for _, block in source.stored_vectors.blocks(file_hashes)), len(file_hashes), width)
        files.append(_write_file(store, f"{STORED_FOLDER}/{numbers[start]:012d}.npy", data, len(file_hashes)))
    return files


def _first_number(file: str) -> int | None:
    """Number of the first vector in a file of stored vectors; None for other files."""
    return (
        int(file.removeprefix(f"{STORED_FOLDER}/").removesuffix(".npy"))
        if file.startswith(f"{STORED_FOLDER}/")
        else None
    )


def stored_files(rows: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
    """Number of the first vector and name of each file of stored vectors."""
    files = [(_first_number(row["file"]), row["file"]) for row in rows]
    return [(first, name) for first, name in files if first is not None]


def _write_file(store: Store, name: str, data: bytes | memoryview, vectors: int) -> dict[str, Any]:
    store.write(name, data)
    return {"file": name, "bytes": len(data), "sha256": sha256(data).hexdigest(), "vectors": vectors}


def _finish(store: Store, output: Output, index: Any, kind: IndexKind, files: list[dict[str, Any]]) -> None:
    rows = [_write_file(store, INDEX_FILE, to_bytes(index), index.ntotal), *files]
    output.write(INDEX_FILES.name, pa.Table.from_pylist(rows, INDEX_FILES.schema))
    output.facts |= {CODEBOOK_FACT: codebook_of(index), KIND_FACT: kind.kind, CODE_BYTES_FACT: kind.code_bytes(index)}
