"""Pairs of a tenant's pool as input of judges: DuckDB sorts ids, texts are looked up block by block."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.judge.port import PAIRS, QUERY_BLOCK

_TEXT_COLUMNS = ["title", "heading", "text", "content_hash"]

_QUERIES_SQL = """
    SELECT query_id, text AS query, substr(sha256(text), 1, 32) AS query_hash FROM queries WHERE tenant = $tenant
"""

# Judges' input is limited to `judged_pool`: the whole pool, or the pairs asked for.
_CREATE_JUDGED_POOL_SQL = "CREATE TEMP VIEW judged_pool AS SELECT tenant, query_id, chunk_id FROM pool"

_PAIRS_PER_QUERY_SQL = (
    "SELECT query_id, count(*) AS pairs FROM judged_pool WHERE tenant = $tenant GROUP BY query_id ORDER BY query_id"
)

_CHUNK_ROWS_SQL = """
    SELECT p.chunk_id, r.row
    FROM judged_pool p LEFT JOIN chunk_rows r USING (chunk_id)
    WHERE p.tenant = $tenant
    ORDER BY p.query_id, p.chunk_id
"""


def pair_blocks(tables: Tables, chunks: TenantChunks, only: pa.Table | None = None) -> Generator[pa.Table, None, None]:
    """Yield all rows of `PAIRS`, by query_id, then chunk_id, `QUERY_BLOCK` queries at a time; see `pool_pairs`."""
    with pool_pairs(tables, chunks, only) as pairs:
        yield from pairs.blocks()


@contextmanager
def pool_pairs(tables: Tables, chunks: TenantChunks, only: pa.Table | None = None) -> Iterator[PoolPairs]:
    """Open the pairs of a tenant's pool, with random access.

    Memory: 8 bytes per pair, plus queries and chunk ids; chunk texts are in a temporary file.

    Args:
        tables: must contain `queries` and `pool`.
        chunks: the tenant's chunks.
        only: restrict the pool to these rows of tenant, query_id and chunk_id; None: all pairs.

    Raises:
        ArtifactError: the pool has an unknown query or chunk.
    """
    with tempfile.TemporaryDirectory(prefix="darklode-judge-") as scratch:
        texts = ChunkTexts(chunks, Path(scratch) / "chunks.arrow")
        with tables.connect() as connection:
            tenant = {"tenant": chunks.tenant}
            _create_view(connection, only)
            queries = connection.sql(_QUERIES_SQL, params=tenant).to_arrow_table()
            sizes = connection.sql(_PAIRS_PER_QUERY_SQL, params=tenant).to_arrow_table()
            rows = _look_up_chunk_rows(connection, chunks)
        yield PoolPairs(rows, sizes, queries, texts, chunks)


def _create_view(connection: duckdb.DuckDBPyConnection, only: pa.Table | None) -> None:
    """Create the view `judged_pool` of the pool's pairs, restricted to `only`."""
    if only is not None:
        connection.register("requested_pairs", only.select(["tenant", "query_id", "chunk_id"]))
    semi_join = " SEMI JOIN requested_pairs USING (tenant, query_id, chunk_id)" if only is not None else ""
    connection.execute(_CREATE_JUDGED_POOL_SQL + semi_join)


def _look_up_chunk_rows(connection: duckdb.DuckDBPyConnection, chunks: TenantChunks) -> NDArray[np.int64]:
    """Look up the row of each pair's chunk, in the order of the pairs."""
    chunk_rows = pa.table({"chunk_id": chunks.chunk_ids, "row": pa.array(np.arange(chunks.n))})
    connection.register("chunk_rows", chunk_rows)
    row_groups = [np.empty(0, np.int64)]
    for batch in connection.sql(_CHUNK_ROWS_SQL, params={"tenant": chunks.tenant}).to_arrow_reader(1 << 16):
        ids = pa.Table.from_batches([batch])
        check_ids_exist(ids, chunks.tenant, "chunk_id", ids["row"])
        row_groups.append(ids["row"].to_numpy())
    return np.concatenate(row_groups)


class PoolPairs:
    """A tenant's pairs by index, ordered by query_id, then chunk_id.

    Attributes:
        starts: row offsets of the queries: query i has the pairs `starts[i]` to `starts[i + 1]` (excluded), shape
            (n_queries + 1,).
        rows: row of each pair's chunk among the tenant's chunks, shape (n_pairs,).
    """

    def __init__(
        self, rows: NDArray[np.int64], sizes: pa.Table, queries: pa.Table, texts: ChunkTexts, chunks: TenantChunks
    ) -> None:
        self.rows = rows
        self.starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(sizes["pairs"].to_numpy())])
        self._query_ids = sizes["query_id"]
        self._queries = queries
        self._texts = texts
        self._chunks = chunks

    def ids(self, numbers: NDArray[np.int64]) -> pa.Table:
        """Look up query_id, chunk_id and row of the chunk, for ascending indices of pairs."""
        query = np.searchsorted(self.starts, numbers, side="right") - 1
        rows = pa.array(self.rows[numbers])
        chunk_ids = self._chunks.chunk_ids.take(rows)
        return pa.table(
            {"query_id": self._query_ids.take(pa.array(query)), "chunk_id": pa.chunked_array([chunk_ids]), "row": rows}
        )

    def take(self, numbers: NDArray[np.int64]) -> pa.Table:
        """Build rows of `PAIRS`, for ascending indices of pairs."""
        return pair_rows(self.ids(numbers), self._chunks.tenant, self._queries, self._texts)

    def blocks(self, begin: int = 0, end: int | None = None) -> Iterator[pa.Table]:
        """Yield all pairs, `QUERY_BLOCK` queries at a time; or only the blocks from `begin` to `end` - 1."""
        cuts = [*self.starts[:-1:QUERY_BLOCK], self.starts[-1]]
        return (self.take(np.arange(first, last)) for first, last in list(pairwise(cuts))[begin:end])


class ChunkTexts:
    """A tenant's chunks in a memory-mapped file, read by row number."""

    def __init__(self, chunks: TenantChunks, path: Path) -> None:
        schema = pa.schema([(name, pa.string()) for name in _TEXT_COLUMNS])
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in chunks.scan(_TEXT_COLUMNS):
                writer.write_batch(pa.record_batch(batch.columns, schema=schema))
        self._file = pa.ipc.open_file(pa.memory_map(str(path)))
        sizes = [self._file.get_batch(number).num_rows for number in range(self._file.num_record_batches)]
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - sizes

    def take(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
        """Read the chunks at `rows`, in that order."""
        order = np.argsort(rows, kind="stable")
        batch = np.searchsorted(self._ends, rows[order], side="right")
        pieces = []
        for number in np.unique(batch):
            local = rows[order][batch == number] - self._starts[number]
            pieces.append(self._file.get_batch(int(number)).take(pa.array(local)))
        return pa.Table.from_batches(pieces, self._file.schema).take(pa.array(np.argsort(order, kind="stable")))


def pair_rows(ids: pa.Table, tenant: str, queries: pa.Table, texts: ChunkTexts) -> pa.Table:
    """Build rows of `PAIRS` in the order of the ids.

    Args:
        ids: query_id, chunk_id, and `row`: index of the chunk.
        tenant: tenant of the pairs.
        queries: table of query_id, query and query_hash.
        texts: the tenant's chunks.

    Raises:
        ArtifactError: an unknown query.
    """
    query_row = pc.index_in(ids["query_id"], queries["query_id"])
    check_ids_exist(ids, tenant, "query_id", query_row)
    query_columns = queries.take(query_row)
    chunks = texts.take(ids["row"].to_numpy())
    columns = {
        "tenant": pa.repeat(tenant, ids.num_rows),
        "query_id": ids["query_id"],
        "query": query_columns["query"],
        "chunk_id": ids["chunk_id"],
        "query_hash": query_columns["query_hash"],
        "chunk_hash": chunks["content_hash"],
        **{name: chunks[name] for name in ("title", "heading", "text")},
    }
    return pa.table([columns[name] for name in PAIRS.names], schema=PAIRS).combine_chunks()


def distinct(texts: pa.ChunkedArray) -> tuple[pa.StringArray, NDArray[np.int64]]:
    """List the distinct texts in order of first occurrence, and each row's index among them, shape (n_rows,)."""
    coded = texts.combine_chunks().dictionary_encode()
    return coded.dictionary, coded.indices.to_numpy().astype(np.int64)


def check_ids_exist(ids: pa.Table, tenant: str, name: str, rows: pa.ChunkedArray) -> None:
    """Raise an error for ids that were not found.

    Args:
        ids: table with the column `name`.
        tenant: tenant of the ids, for the message.
        name: column of the id.
        rows: row of each id; null if not found.

    Raises:
        ArtifactError: an id was not found.
    """
    if rows.null_count:
        unknown_id = ids[name].filter(pc.is_null(rows))[0].as_py()
        raise ArtifactError(
            f"the pool has {name} {unknown_id!r}, which is unknown in tenant {tenant!r}; build the run again"
        )
