"""What a judge is shown: texts are looked up for pairs that are known by their ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.corpora import TenantChunks
from pipeline.errors import ArtifactError
from pipeline.judges.port import PAIRS

_SHOWN = ["title", "heading", "text", "content_hash"]


def shown_pairs(ids: pa.Table, tenant: str, queries: pa.Table, texts: ChunkTexts) -> pa.Table:
    """Rows of `PAIRS` in the order of the ids.

    Args:
        ids: query_id, chunk_id, and `row`, the chunk's place among the tenant's.
        tenant: whose.
        queries: query_id, query and query_hash of at least the queries asked.
        texts: the tenant's chunks.

    Raises:
        ArtifactError: a query is not there.
    """
    place = pc.index_in(ids["query_id"], queries["query_id"])
    check_known(ids, tenant, "query_id", place)
    asked = queries.take(place)
    shown = texts.take(ids["row"].to_numpy())
    columns = {
        "tenant": pa.repeat(tenant, ids.num_rows),
        "query_id": ids["query_id"],
        "query": asked["query"],
        "chunk_id": ids["chunk_id"],
        "query_hash": asked["query_hash"],
        "chunk_hash": shown["content_hash"],
        **{name: shown[name] for name in ("title", "heading", "text")},
    }
    return pa.table([columns[name] for name in PAIRS.names], schema=PAIRS).combine_chunks()


def check_known(ids: pa.Table, tenant: str, name: str, found: pa.ChunkedArray) -> None:
    """Refuse ids that were not found.

    Raises:
        ArtifactError: one of `found` is null; the message names its id, from the column `name`.
    """
    if found.null_count:
        lost = ids[name].filter(pc.is_null(found))[0].as_py()
        message = f"the pool names {name} {lost!r}, which tenant {tenant!r} does not have; build the run anew"
        raise ArtifactError(message)


class ChunkTexts:
    """A tenant's chunks in a memory-mapped file, read by row number."""

    def __init__(self, chunks: TenantChunks, path: Path) -> None:
        schema = pa.schema([(name, pa.string()) for name in _SHOWN])
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in chunks.scan(_SHOWN):
                writer.write_batch(pa.record_batch(batch.columns, schema=schema))
        self._file = pa.ipc.open_file(pa.memory_map(str(path)))
        sizes = [self._file.get_batch(number).num_rows for number in range(self._file.num_record_batches)]
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - sizes

    def take(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
        """The chunks at `rows`, in that order."""
        order = np.argsort(rows, kind="stable")
        batch = np.searchsorted(self._ends, rows[order], side="right")
        pieces = []
        for number in np.unique(batch):
            local = rows[order][batch == number] - self._starts[number]
            pieces.append(self._file.get_batch(int(number)).take(pa.array(local)))
        return pa.Table.from_batches(pieces, self._file.schema).take(pa.array(np.argsort(order, kind="stable")))
