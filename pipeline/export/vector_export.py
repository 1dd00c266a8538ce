"""Export an index, or a run's vectors, as files that a search engine loads; all files are written, or none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.artifacts.tables import scratch
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export.engines import ENGINES
from darklode.pipeline.export.vector_engine import Engine
from darklode.pipeline.export.writers import whole_folder
from darklode.pipeline.index.source import TEXT_COLUMNS, VectorSource

BLOCK = 1 << 11
"""Texts in memory at a time."""

BYTES = 8 << 20
"""Approximate size of a file: engines reject long request bodies (Qdrant above 32 MiB)."""

_LINES = """
    SELECT CAST({line} AS VARCHAR) AS line FROM (
        SELECT *, CAST(CAST(md5(concat($tenant, chr(0), text_id)) AS UUID) AS VARCHAR) AS id FROM block
    ) ORDER BY place
"""


def export_points(source: VectorSource, name: str, to: Path, ids: pa.Table | None = None) -> list[Path]:
    """Write one tenant's vectors with their ids and texts, ascending by text_id.

    Args:
        source: texts and vectors.
        name: of the engine.
        to: a folder that is empty or does not exist.
        ids: text_id and semantic_id of the texts; None: they have none.

    Returns:
        The files written, sorted.

    Raises:
        ExportError: there is no such engine, or the folder is not empty or cannot be made.
    """
    if name not in ENGINES:
        raise ExportError(f"unknown engine {name!r}; use one of {', '.join(ENGINES)}")
    engine = ENGINES[name]
    with whole_folder(to.expanduser().resolve()) as folder:
        dimensions, count = _write(source, engine, ids, folder)
        file, definition = engine.definition(dimensions)
        (folder / file).write_text(json.dumps(definition, indent=1) + "\n", encoding="utf-8")
        page = _page(source, name, dimensions, count) + engine.loading
        (folder / "README.md").write_text(page, encoding="utf-8")
    return sorted(path for path in to.expanduser().resolve().iterdir() if path.is_file())


def semantic_ids(tables: Tables) -> pa.Table:
    """Text_id and semantic_id, codes and disambiguation joined by hyphens, of a folder of `darklode index`."""
    return tables.sql("""
        SELECT text_id, array_to_string(codes || [disambiguation], '-') AS semantic_id
        FROM semantic_ids ORDER BY text_id
    """)


def _write(source: VectorSource, engine: Engine, ids: pa.Table | None, folder: Path) -> tuple[int, int]:
    dimensions = count = files = 0
    with scratch() as connection:
        for block in _blocks(source, ids):
            dimensions, count = block["vector"].type.list_size, count + block.num_rows
            connection.register("block", block)
            lines = connection.sql(_LINES.format(line=engine.line), params={"tenant": source.tenant}).to_arrow_table()
            for part in _parts(lines["line"].combine_chunks()):
                body = engine.between.join(value.as_buffer() for value in part)
                (folder / f"points-{files:05}.{engine.ending}").write_bytes(engine.before + body + engine.after)
                files += 1
    return dimensions, count


def _parts(lines: pa.Array) -> Iterator[pa.Array]:
    """The lines in pieces of about `BYTES`."""
    lengths = pc.binary_length(lines).to_numpy().astype(np.int64)
    ends = np.flatnonzero(np.diff(np.cumsum(lengths) // BYTES)) + 1
    for start, end in zip([0, *ends], [*ends, len(lines)], strict=True):
        yield lines.slice(start, end - start)


def _blocks(source: VectorSource, ids: pa.Table | None) -> Iterator[pa.Table]:
    """Texts with vector, semantic_id and place."""
    for piece in source.text_tables():
        codes = pa.nulls(len(piece), pa.string())
        if ids is not None:
            codes = ids["semantic_id"].take(pc.index_in(piece["text_id"], value_set=ids["text_id"].combine_chunks()))
        for start, vectors in source.stored_vectors.blocks(piece["content_hash"], BLOCK):
            rows = piece.slice(start, len(vectors)).select([n for n in TEXT_COLUMNS.names if n != "content_hash"])
            numbers = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
            rows = rows.append_column("semantic_id", codes.slice(start, len(vectors)))
            rows = rows.append_column("vector", numbers)
            yield rows.append_column("place", pa.array(np.arange(len(vectors))))


def _page(source: VectorSource, name: str, dimensions: int, count: int) -> str:
    encoder = source.stored_vectors.encoder.encoder_id()
    return (
        f"# {count:,} texts for {name}\n\nOf the tenant {source.tenant}; vectors of {dimensions} numbers and length 1, "
        f"by `{encoder}`. It, or an adapter of it, encodes the queries. Written by Darklode.\n"
    )
