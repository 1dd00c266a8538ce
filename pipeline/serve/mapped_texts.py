"""The searched texts in a memory-mapped file, looked up by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.types import Ints, Row
from darklode.pipeline.index.source import TEXT_SCHEMA

ROWS_PER_BATCH = 1 << 13


class IndexedTexts:
    """Texts by row, from 0; only ids and hashes are in memory.

    Args:
        pieces: tables of `TEXT_SCHEMA`.
        file: local file to write.
    """

    def __init__(self, pieces: Iterable[pa.Table], file: Path) -> None:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, TEXT_SCHEMA) as writer:
            for piece in pieces:
                writer.write_table(piece, ROWS_PER_BATCH)
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._starts = np.cumsum([0, *(len(batch) for batch in self._batches)])
        self.ids = self._column("text_id")

    def __len__(self) -> int:
        return len(self.ids)

    def hashes(self) -> pa.StringArray:
        """Content hash of each row."""
        return self._column("content_hash")

    def iterate_hashes(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield content hashes and the texts as encoders read them, batch by batch."""
        for batch in self._batches:
            rows = pa.Table.from_batches([batch])
            yield batch["content_hash"], view(rows).combine_chunks()

    def text_rows(self, rows: Ints) -> list[Row]:
        """Text_id, doc_id, title, heading and text of some rows, in the given order."""
        of_batch = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(of_batch, kind="stable")
        parts = [
            self._batches[number].take(pa.array(rows[of_batch == number] - self._starts[number]))
            for number in np.unique(of_batch)
        ]
        text_rows = pa.Table.from_batches(parts, TEXT_SCHEMA).drop_columns("content_hash").to_pylist()
        return [text_rows[position] for position in np.argsort(order).tolist()]

    def _column(self, name: str) -> pa.StringArray:
        return pa.concat_arrays([pa.array([], pa.string()), *(batch[name] for batch in self._batches)])
