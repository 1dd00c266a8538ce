"""The pairs of one tenant's pool: DuckDB sorts the ids, the texts are looked up for each block."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.artifacts import Tables
from pipeline.corpora import TenantChunks
from pipeline.judges.port import QUERY_BLOCK
from pipeline.judges.shown import ChunkTexts, check_known, shown_pairs

_QUERIES = """
    SELECT query_id, text AS query, substr(sha256(text), 1, 32) AS query_hash FROM queries WHERE tenant = $tenant
"""

_ASKED = "CREATE TEMP VIEW asked AS SELECT tenant, query_id, chunk_id FROM pool"

_SIZES = "SELECT query_id, count(*) AS pairs FROM asked WHERE tenant = $tenant GROUP BY query_id ORDER BY query_id"

_IDS = """
    SELECT p.query_id, p.chunk_id, r.row
    FROM asked p LEFT JOIN chunk_rows r USING (chunk_id)
    WHERE p.tenant = $tenant
    ORDER BY p.query_id, p.chunk_id
"""


def pair_blocks(tables: Tables, chunks: TenantChunks, only: pa.Table | None = None) -> Iterator[pa.Table]:
    """Rows of `PAIRS`, by query_id, then chunk_id: all of `QUERY_BLOCK` queries at a time.

    Memory follows the block, the tenant's queries and its chunk ids; chunk texts lie in a temporary file.

    Args:
        tables: holds `queries` and `pool`.
        chunks: the tenant's chunks.
        only: leave out pairs of the pool that have no row here, by tenant, query_id and chunk_id; None takes all.

    Raises:
        ArtifactError: the pool names a query or a chunk that the tenant does not have.
    """
    with tables.connect() as connection, tempfile.TemporaryDirectory(prefix="darklode-judge-") as scratch:
        texts = ChunkTexts(chunks, Path(scratch) / "chunks.arrow")
        tenant = {"tenant": chunks.tenant}
        _ask(connection, only)
        queries = connection.sql(_QUERIES, params=tenant).to_arrow_table()
        sizes = connection.sql(_SIZES, params=tenant).to_arrow_table()["pairs"].to_numpy()
        blocks = np.add.reduceat(sizes, np.arange(0, len(sizes), QUERY_BLOCK)) if len(sizes) else sizes
        for ids in cut(_sorted_ids(connection, chunks), blocks.tolist()):
            check_known(ids, chunks.tenant, "chunk_id", ids["row"])
            yield shown_pairs(ids, chunks.tenant, queries, texts)


class PoolPairs:
    """A tenant's pairs by number: by query_id, then chunk_id.

    Attributes:
        starts: the pairs of the i-th query are `starts[i]` to `starts[i + 1]`, shape (n_queries + 1,).
        rows: row of each pair's chunk among the tenant's chunks, shape (n_pairs,).
    """

    def __init__(
        self, rows: NDArray[np.int64], sizes: pa.Table, queries: pa.Table, texts: ChunkTexts, chunks: TenantChunks
    ) -> None:
        self.rows = rows
        self.starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(sizes["pairs"].to_numpy())])
        self._query_ids = sizes["query_id"]
        self._queries, self._texts, self._chunks = queries, texts, chunks

    def ids(self, numbers: NDArray[np.int64]) -> pa.Table:
        """query_id, chunk_id and row of the chunk, for ascending numbers of pairs."""
        query = np.searchsorted(self.starts, numbers, side="right") - 1
        rows = pa.array(self.rows[numbers])
        chunk_ids = self._chunks.chunk_ids.take(rows)
        return pa.table(
            {"query_id": self._query_ids.take(pa.array(query)), "chunk_id": pa.chunked_array([chunk_ids]), "row": rows}
        )

    def take(self, numbers: NDArray[np.int64]) -> pa.Table:
        """Rows of `PAIRS`, for ascending numbers of pairs."""
        return shown_pairs(self.ids(numbers), self._chunks.tenant, self._queries, self._texts)

    def blocks(self) -> Iterator[pa.Table]:
        """All pairs, those of `QUERY_BLOCK` queries at a time."""
        cuts = [*self.starts[:-1:QUERY_BLOCK], self.starts[-1]]
        return (self.take(np.arange(first, end)) for first, end in pairwise(cuts))


@contextmanager
def pool_pairs(tables: Tables, chunks: TenantChunks) -> Iterator[PoolPairs]:
    """The pairs of a tenant's pool, to be taken in any order.

    Memory follows the tenant's pairs, 8 bytes each, its queries and its chunk ids.

    Raises:
        ArtifactError: the pool names a query or a chunk that the tenant does not have.
    """
    with tempfile.TemporaryDirectory(prefix="darklode-judge-") as scratch:
        texts = ChunkTexts(chunks, Path(scratch) / "chunks.arrow")
        with tables.connect() as connection:
            tenant = {"tenant": chunks.tenant}
            _ask(connection)
            queries = connection.sql(_QUERIES, params=tenant).to_arrow_table()
            sizes = connection.sql(_SIZES, params=tenant).to_arrow_table()
            rows = np.concatenate([_rows(batch, chunks.tenant) for batch in _sorted_ids(connection, chunks)])
        yield PoolPairs(rows, sizes, queries, texts, chunks)


def _rows(batch: pa.RecordBatch, tenant: str) -> NDArray[np.int64]:
    ids = pa.Table.from_batches([batch])
    check_known(ids, tenant, "chunk_id", ids["row"])
    return np.asarray(ids["row"].to_numpy(), np.int64)


def _ask(connection: duckdb.DuckDBPyConnection, only: pa.Table | None = None) -> None:
    """Make the view `asked` of the pool, or of those of its pairs that are in `only`."""
    if only is not None:
        connection.register("wanted", only.select(["tenant", "query_id", "chunk_id"]))
    connection.execute(_ASKED + (" SEMI JOIN wanted USING (tenant, query_id, chunk_id)" if only is not None else ""))


def _sorted_ids(connection: duckdb.DuckDBPyConnection, chunks: TenantChunks) -> pa.RecordBatchReader:
    rows = pa.array(np.arange(chunks.n))
    connection.register("chunk_rows", pa.table({"chunk_id": chunks.chunk_ids, "row": rows}))
    return connection.sql(_IDS, params={"tenant": chunks.tenant}).to_arrow_reader(1 << 16)


def cut(reader: pa.RecordBatchReader, sizes: list[int]) -> Iterator[pa.Table]:
    """A reader's rows in tables of the given sizes."""
    rest = reader.schema.empty_table()
    for size in sizes:
        pieces = [rest]
        while sum(piece.num_rows for piece in pieces) < size:
            pieces.append(pa.Table.from_batches([reader.read_next_batch()]))
        joined = pa.concat_tables(pieces).combine_chunks()
        yield joined.slice(0, size)
        rest = joined.slice(size)
