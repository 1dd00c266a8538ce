"""Export an index, or a run's vectors, as files that a search engine loads; all files are written, or none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export.engines import ENGINES
from darklode.pipeline.export.vector_engine import Engine
from darklode.pipeline.export.writers import atomic_folder
from darklode.pipeline.index.source import TEXT_SCHEMA, VectorSource

TEXTS_PER_BLOCK = 1 << 11
"""Texts held in memory at a time."""

BYTES_PER_FILE = 8 << 20
"""Approximate size of a file: engines reject long request bodies (Qdrant above 32 MiB)."""

_POINTS_SQL = """
    SELECT CAST({line} AS VARCHAR) AS line FROM (
        SELECT *, CAST(CAST(md5(concat($tenant, chr(0), text_id)) AS UUID) AS VARCHAR) AS id FROM block
    ) ORDER BY position
"""


def export_points(source: VectorSource, name: str, to: Path, ids: pa.Table | None = None) -> list[Path]:
    """Write one tenant's vectors with their ids and texts, ascending by text_id.

    Args:
        source: texts and vectors.
        name: name of the engine.
        to: a folder that is empty or does not exist.
        ids: text_id and semantic_id of the texts; None: no semantic ids.

    Returns:
        The files written, sorted.

    Raises:
        ExportError: unknown engine, or the folder is not empty or cannot be created.
    """
    if name not in ENGINES:
        raise ExportError(f"unknown engine {name!r}; use one of {', '.join(ENGINES)}")
    engine = ENGINES[name]
    with atomic_folder(to.expanduser().resolve()) as folder:
        dimensions, count = _write(source, engine, ids, folder)
        file, definition = engine.definition(dimensions)
        (folder / file).write_text(json.dumps(definition, indent=1) + "\n", encoding="utf-8")
        page = _page(source, name, dimensions, count) + engine.loading
        (folder / "README.md").write_text(page, encoding="utf-8")
    return sorted(path for path in to.expanduser().resolve().iterdir() if path.is_file())


SEMANTIC_IDS_SQL = """
    SELECT text_id, array_to_string(codes || [disambiguation], '-') AS semantic_id
    FROM semantic_ids WHERE tenant = $tenant ORDER BY text_id
"""


def semantic_ids(tables: Tables, tenant: str) -> pa.Table:
    """Table of text_id and semantic_id of a tenant; a semantic_id is codes and disambiguation, joined by hyphens."""
    with tables.connect(SEMANTIC_IDS_SQL) as connection:
        return connection.sql(SEMANTIC_IDS_SQL, params={"tenant": tenant}).to_arrow_table()


def _write(source: VectorSource, engine: Engine, ids: pa.Table | None, folder: Path) -> tuple[int, int]:
    """Write the files `points-*`; returns the dimensions of the vectors and the number of texts."""
    dimensions = count = n_files = 0
    with scratch() as connection:
        for block in _blocks(source, ids):
            dimensions = block["vector"].type.list_size
            count += block.num_rows
            connection.register("block", block)
            lines = connection.sql(
                _POINTS_SQL.format(line=engine.line), params={"tenant": source.tenants[0]}
            ).to_arrow_table()
            for part in _parts(lines["line"].combine_chunks()):
                body = engine.between.join(value.as_buffer() for value in part)
                (folder / f"points-{n_files:05}.{engine.ending}").write_bytes(engine.before + body + engine.after)
                n_files += 1
    return dimensions, count


def _parts(lines: pa.Array) -> Iterator[pa.Array]:
    """Split lines into pieces of about `BYTES_PER_FILE`."""
    lengths = pc.binary_length(lines).to_numpy().astype(np.int64)
    boundaries = np.flatnonzero(np.diff(np.cumsum(lengths) // BYTES_PER_FILE)) + 1
    for start, end in zip([0, *boundaries], [*boundaries, len(lines)], strict=True):
        yield lines.slice(start, end - start)


def _blocks(source: VectorSource, ids: pa.Table | None) -> Iterator[pa.Table]:
    """Yield texts with vector, semantic_id and position."""
    for piece in source.text_tables():
        codes = pa.nulls(len(piece), pa.string())
        if ids is not None:
            codes = ids["semantic_id"].take(pc.index_in(piece["text_id"], value_set=ids["text_id"].combine_chunks()))
        for start, vectors in source.stored_vectors.blocks(piece["content_hash"], TEXTS_PER_BLOCK):
            rows = piece.slice(start, len(vectors)).select(
                [name for name in TEXT_SCHEMA.names if name != "content_hash"]
            )
            vector_column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
            rows = rows.append_column("semantic_id", codes.slice(start, len(vectors)))
            rows = rows.append_column("vector", vector_column)
            yield rows.append_column("position", pa.array(np.arange(len(vectors))))


def _page(source: VectorSource, name: str, dimensions: int, count: int) -> str:
    encoder = source.stored_vectors.encoder.encoder_id()
    return (
        f"# {count:,} texts for {name}\n\nTenant {source.tenants[0]}; unit vectors, {dimensions} dimensions, by "
        f"`{encoder}`. Encode queries with this encoder or an adapter of it. Written by Darklode.\n"
    )
