"""The texts of a tenant's chunks as retrievers and judges read them: title, heading and text in one string."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.artifacts.tables import BATCH_ROWS

PASSAGE_SQL = "concat_ws(chr(10), {of}title, {of}heading, {of}text)"
"""The text of `view` in SQL; `{of}` is the table alias with its dot, or empty."""

TEXT_FORMS_SQL = {"title_heading_text": PASSAGE_SQL, "text": "{of}text"}
"""SQL of a passage in triplets and exports, by the setting `triplets.text_form`; `{of}` as in `PASSAGE_SQL`."""


def view(chunks: pa.Table) -> pa.ChunkedArray:
    """The text of each chunk that retrievers and judges read: title, heading and text on separate lines, without nulls.

    Args:
        chunks: a table with the columns title, heading and text of `chunks`.
    """
    parts = [chunks["title"], chunks["heading"], chunks["text"]]
    return pc.binary_join_element_wise(*parts, "\n", null_handling="skip")


def tenants(tables: Tables, table: str = "chunks") -> list[str]:
    """The tenants that have rows in a table, sorted."""
    names: set[str] = set()
    for batch in tables.batches(table, ["tenant"]):
        names.update(pc.unique(batch["tenant"]).to_pylist())
    return sorted(names)


class Digest:
    """Incremental hash of text columns; it depends on the values, not on the pieces in which they are added."""

    def __init__(self, columns: int) -> None:
        self._lengths = [hashlib.sha256() for _ in range(columns)]
        self._bytes = [hashlib.sha256() for _ in range(columns)]

    def update(self, columns: Iterable[pa.ChunkedArray]) -> None:
        """Add rows: one string column without nulls for each of the columns."""
        for column, lengths, content in zip(columns, self._lengths, self._bytes, strict=True):
            for piece in column.chunks:
                lengths.update(pc.binary_length(piece).to_numpy().astype("<i4"))
                content.update(_join_texts(piece))

    def hexdigest(self) -> str:
        """32 hex digits."""
        ends = b"".join(part.digest() for part in (*self._lengths, *self._bytes))
        return hashlib.sha256(ends).hexdigest()[:32]


def _join_texts(piece: pa.StringArray) -> pa.Buffer | bytes:
    lists = pa.ListArray.from_arrays(pa.array([0, len(piece)], pa.int32()), piece)
    return pc.binary_join(lists, "")[0].as_buffer() or b""


class TenantChunks:
    """One tenant's chunks, in table order; the row numbers of retrievers count in this order, from 0.

    Args:
        tables: holds the table `chunks`.
        tenant: the tenant; it may have no chunks.
    """

    def __init__(self, tables: Tables, tenant: str) -> None:
        self.tables = tables
        self.tenant = tenant

    def scan(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the tenant's rows in batches, with about one batch in memory."""
        scanner = self.tables.dataset("chunks", columns).scanner(
            columns=columns,
            filter=pc.field("tenant") == self.tenant,
            batch_size=BATCH_ROWS,
            batch_readahead=2,
            fragment_readahead=1,
            use_threads=False,
        )
        return (batch for batch in scanner.to_batches() if batch.num_rows)

    def batches(self) -> Iterator[list[str]]:
        """Yield the `view` of the chunks in batches; each call starts at the first chunk."""
        for batch in self.scan(["title", "heading", "text"]):
            yield view(pa.Table.from_batches([batch])).to_pylist()

    def hashes(self) -> pa.StringArray:
        """Content hash of each chunk by row number; it identifies the chunk's `view`."""
        columns = (batch["content_hash"] for batch in self.scan(["content_hash"]))
        return pa.concat_arrays([pa.array([], pa.string()), *columns])

    def iterate_hashes(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield content hashes and `view` texts of the chunks in batches."""
        for batch in self.scan(["title", "heading", "text", "content_hash"]):
            rows = pa.Table.from_batches([batch])
            yield rows["content_hash"].combine_chunks(), view(rows).combine_chunks()

    @cached_property
    def chunk_ids(self) -> pa.StringArray:
        """The chunk_ids by row number."""
        return pa.concat_arrays([pa.array([], pa.string()), *(batch["chunk_id"] for batch in self.scan(["chunk_id"]))])

    @cached_property
    def doc_ids(self) -> pa.StringArray:
        """The document of each chunk by row number."""
        return pa.concat_arrays([pa.array([], pa.string()), *(batch["doc_id"] for batch in self.scan(["doc_id"]))])

    @property
    def n(self) -> int:
        """Number of chunks."""
        return len(self.chunk_ids)

    @cached_property
    def digest(self) -> str:
        """Hash of the tenant's chunk ids and contents, in order: 32 hex digits."""
        digest = Digest(2)
        for batch in self.scan(["chunk_id", "content_hash"]):
            digest.update(pa.Table.from_batches([batch]).columns)
        return digest.hexdigest()
