"""The files of an index: fitted on a sample, filled block by block; an update takes out and adds what changed."""

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
from darklode.pipeline.index.stored_vectors import UNIT, encode_npy
from darklode.schemas.serving import INDEXES, IndexSettings
from darklode.schemas.serving_tables import INDEX_FILES, INDEXED_TEXTS

FILL = Stage("index", 2, (INDEXED_TEXTS.name,), (INDEX_FILES.name,))

FILE, STORED = "index.faiss", "stored"
CODEBOOK, KIND, BYTES = "codebook", "kind", "code bytes"
"""Facts of the stage: what was fitted, the kind that was built, and what a vector takes besides its number."""

STORED_BYTES = 1 << 29
"""Of a file of stored vectors: a search is quickest where all lie in one."""


@dataclass(frozen=True)
class IndexLocation:
    """Where the files go.

    Attributes:
        store: the folder or prefix.
        stores: whether vectors are stored to score candidates again by, where codes lose something of them.
    """

    store: Store
    stores: bool

    @property
    def identity(self) -> dict[str, Any]:
        """Where an index lies changes nothing of it."""
        return {"stores": self.stores}


def built_kind(settings: IndexSettings, total: int) -> IndexKind:
    """The kind that so many vectors get: too few to fit codes on are searched one by one."""
    configured = as_kind(settings, IndexKind)
    flat: IndexKind = INDEXES.load("flat")()
    return configured if total >= configured.LEAST else flat


@dataclass(frozen=True)
class CodingShard(VectorShard):
    """A shard whose vectors are given codes.

    Attributes:
        store: has the fitted index below `progress`.
    """

    store: Store


def fill_index(  # noqa: PLR0913 (what is fitted, on what, and where that lies and is worked on)
    tables: Tables,
    output: Output,
    settings: IndexSettings,
    source: VectorSource,
    location: IndexLocation,
    spread: Spread = here,
    *,
    seed: int,
) -> None:
    """Fit the index on a sample and fill it.

    Args:
        tables: `indexed_texts`.
        output: takes `index_files`.
        settings: of the kind.
        source: the vectors.
        location: takes the files.
        spread: where vectors are given codes, by a kind whose codes can be made apart from the index.
        seed: of the sample.
    """
    texts = tables.read(INDEXED_TEXTS.name, ["content_hash", "number"])
    hashes, numbers = texts["content_hash"], texts["number"].to_numpy()
    kind = built_kind(settings, len(numbers))
    chosen = np.sort(np.random.default_rng(seed).permutation(len(numbers))[: settings.train_size])
    with one_thread():
        index = kind.train(source.stored_vectors.take(hashes.take(pa.array(chosen))), len(numbers))
        if spread is not here and kind.APART:
            pieces = _codes(
                tables, source.stored_vectors, location.store, index, spread, output.unit_key("", codebook_of(index))
            )
            kind.add_codes(index, _with_numbers(pieces, numbers, output))
        else:
            _add(index, source, hashes, numbers, output)
    location.store.delete_folder(STORED)
    files = _store(location.store, source, hashes, numbers) if location.stores and kind.LOSSY else []
    _finish(location.store, output, index, kind, files)
    output.count(FunnelStep("index", "texts", len(numbers), "vectors", index.ntotal))


def _codes(
    tables: Tables, stored_vectors: StoredVectors, store: Store, index: Any, spread: Spread, basis: str
) -> Iterator[pa.Table]:
    store.write(_training_key(basis), to_bytes(index))
    every = [
        CodingShard(**vars(shard), store=store)
        for shard in make_shards(tables, stored_vectors, FILL.name, basis, spread.places)
    ]
    return chain.from_iterable(spread(encode_shard, every))


def encode_shard(shard: CodingShard) -> Pieces:
    """The codes of each block of a shard."""
    name = _training_key(shard.basis)
    index = from_bytes(shard.store.read(name) or b"", shard.store.path(name))
    with one_thread():
        for block in shard.blocks():
            codes = index.sa_encode(block)
            kind, data = pa.binary(codes.shape[1]), pa.py_buffer(codes)
            yield pa.table({"code": pa.FixedSizeBinaryArray.from_buffers(kind, len(codes), [None, data])})


def _training_key(basis: str) -> str:
    return f"progress/{FILL.name}/{basis}.faiss"


def _with_numbers(pieces: Iterable[pa.Table], numbers: Ints, output: Output) -> Iterator[tuple[Bytes, Ints]]:
    done = 0
    for piece in pieces:
        codes = piece["code"].combine_chunks()
        flat = np.frombuffer(codes.buffers()[1], np.uint8)[: len(codes) * codes.type.byte_width]
        yield flat.reshape(len(codes), -1), numbers[done : done + len(codes)]
        done += len(codes)
        output.progress(done, len(numbers))


def refill_index(
    tables: Tables, output: Output, source: VectorSource, location: IndexLocation, *, kind: str, trained: str
) -> None:
    """Take out what went, add what came; nothing is fitted. Begun again after a kill, it goes on from what lies there.

    Args:
        tables: `indexed_texts`.
        output: takes `index_files`.
        source: the vectors.
        location: has the files, and takes them.
        kind: that was built.
        trained: the codebook that stays in use.

    Raises:
        ArtifactError: the files are gone or damaged, or are by another codebook.
    """
    texts = tables.read(INDEXED_TEXTS.name, ["content_hash", "number"])
    numbers, made = texts["number"].to_numpy(), INDEXES.load(kind)()
    index = open_index(location.store)
    if codebook_of(index) != trained:
        raise ArtifactError(f"{location.store.path(FILE)} is by another codebook than {trained}; make the index anew")
    indexed_numbers = numbers_in(index)
    gone, came = (
        indexed_numbers[~is_member(indexed_numbers, numbers)],
        np.flatnonzero(~is_member(numbers, indexed_numbers)),
    )
    came = came[np.argsort(numbers[came])]
    with one_thread():
        if len(gone) and made.FORGETS:
            index.remove_ids(gone)
        _add(index, source, texts["content_hash"].take(pa.array(came)), numbers[came], output)
    before = output.previous_tables(INDEX_FILES.name)
    files = before.read(INDEX_FILES.name).to_pylist() if before else []
    again = {*numbers[came].tolist()}
    files = [row for row in files if row["file"] != FILE and _first(row["file"]) not in again]
    if location.stores and made.LOSSY and len(came):
        files += _store(location.store, source, texts["content_hash"].take(pa.array(came)), numbers[came])
    _finish(location.store, output, index, made, files)
    output.facts["removed"], output.facts["added"] = len(gone), len(came)
    output.count(FunnelStep("index", "texts", len(numbers), "vectors", index.ntotal))


def open_index(store: Store) -> Any:
    """The index in a folder.

    Raises:
        ArtifactError: there is none, or it is damaged.
    """
    data = store.read(FILE)
    if data is None:
        raise ArtifactError(f"{store.url} holds no index; make one with `darklode index RUN --encoder … --out …`")
    return from_bytes(data, store.path(FILE))


def forget_missing(run: Run) -> None:
    """Have the stage done again where one of its files is not as long as it was."""
    if run.manifest(FILL) is None:
        return
    rows = run.tables(INDEX_FILES.name).read(INDEX_FILES.name).to_pylist()
    if any(run.store.size(row["file"]) != row["bytes"] for row in rows):
        run.store.delete(f"manifests/{FILL.name}.json")


def _add(index: Any, source: VectorSource, hashes: pa.ChunkedArray, numbers: Ints, output: Output) -> None:
    for start, block in source.stored_vectors.blocks(hashes):
        index.add_with_ids(block, numbers[start : start + len(block)])
        output.progress(start + len(block), len(numbers))


def _store(store: Store, source: VectorSource, hashes: pa.ChunkedArray, numbers: Ints) -> list[dict[str, Any]]:
    """Write vectors whose numbers follow one another."""
    assert (np.diff(numbers) == 1).all(), "numbers are given one after the other"
    files, width = [], source.stored_vectors.take(hashes[:1]).shape[1]
    rows_per_file = STORED_BYTES // (width + UNIT)
    for start in range(0, len(numbers), rows_per_file):
        file_hashes = hashes[start : start + rows_per_file]
        data = encode_npy((block for _, block in source.stored_vectors.blocks(file_hashes)), len(file_hashes), width)
        files.append(_written(store, f"{STORED}/{numbers[start]:012d}.npy", data, len(file_hashes)))
    return files


def _first(file: str) -> int | None:
    """Number of the first vector in a file of stored ones."""
    return int(file.removeprefix(f"{STORED}/").removesuffix(".npy")) if file.startswith(f"{STORED}/") else None


def stored_files(rows: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
    """Number of the first vector, and the file's name."""
    files = [(_first(row["file"]), row["file"]) for row in rows]
    return [(first, name) for first, name in files if first is not None]


def _written(store: Store, name: str, data: bytes | memoryview, vectors: int) -> dict[str, Any]:
    store.write(name, data)
    return {"file": name, "bytes": len(data), "sha256": sha256(data).hexdigest(), "vectors": vectors}


def _finish(store: Store, output: Output, index: Any, kind: IndexKind, files: list[dict[str, Any]]) -> None:
    rows = [_written(store, FILE, to_bytes(index), index.ntotal), *files]
    output.write(INDEX_FILES.name, pa.Table.from_pylist(rows, INDEX_FILES.schema))
    output.facts |= {CODEBOOK: codebook_of(index), KIND: kind.kind, BYTES: kind.code_bytes(index)}
