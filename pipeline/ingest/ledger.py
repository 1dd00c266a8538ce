"""The rows that are turned away, and the count of those that came in: none vanishes."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.artifacts import Output
from pipeline.ingest.block import Block
from pipeline.ingest.files import File
from pipeline.ingest.tally import Tally

PAYLOAD = 500
LONGEST = 4 * PAYLOAD
FLUSH_ROWS = 8192
Masking = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class Kind:
    """What is read: the table it becomes, the role that names a row, the reason for other files, its settings."""

    table: str
    key: str
    foreign: str
    columns: str


KINDS = {
    "documents": Kind("documents", "doc_id", "not a document format", "ingest.documents.columns"),
    "queries": Kind("raw_queries", "query_id", "not a query format", "ingest.queries.columns"),
    "impressions": Kind("impressions", "event_id", "not a log format", "logs.columns"),
}


class Ledger:
    """Rows in and rejects of one ingest.

    Args:
        output: where rejects, progress and the funnel step go.
        kind: one of KINDS.
        path: the source as the user named it, for messages.
        files: the files that will be read, for the total of the progress, in bytes.
        masking: what is done to payloads before they are cut.
    """

    def __init__(
        self, output: Output, kind: str, path: str, files: Sequence[File], masking: Masking | None = None
    ) -> None:
        self._output = output
        self.name = kind
        self.kind = KINDS[kind]
        self._path = path
        self._total = sum(file.size for file in files)
        self._finished = 0
        self._tally = Tally(self.kind.foreign)
        self._waiting: list[tuple[Any, ...]] = []
        self._masking = masking
        self._heard = True

    def expect(self, files: Iterable[File]) -> None:
        """Add files to those that will be read."""
        self._total += sum(file.size for file in files)

    def saw(self, rows: int) -> None:
        """Count rows on their way in, good and bad; a negative number takes back what turned out to be none."""
        self._tally.rows += rows * self._heard

    def at(self, position: int) -> None:
        """Report how far the open file is read, in bytes."""
        if self._heard:
            self._output.progress(self._finished + position, self._total)

    def closed(self, file: File) -> None:
        """Report a file as read to its end."""
        self._finished += file.size * self._heard
        self.at(0)

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Count and reject nothing: for rows that are only looked at, and counted where they belong."""
        self._heard = False
        try:
            yield
        finally:
            self._heard = True

    def reject(self, reason: str, file: str, line: int | None, payload: str | None) -> None:
        """Turn away one row that could not be read; its payload is cut to 500 characters."""
        self._add(reason, (None, None, file, line, None, payload and payload[:LONGEST]))

    def foreign(self, file: File) -> None:
        """Turn away a file of another kind; it counts as a row, but not as an unreadable one."""
        self.saw(1)
        self.reject(self.kind.foreign, file.name, None, None)

    def drop(self, reason: str, block: Block) -> None:
        """Turn away rows that were read but cannot be used."""
        rows = {role: values.cast(pa.string()).to_pylist() for role, values in block.columns.items()}
        places = zip(block.files.to_pylist(), block.lines.to_pylist(), strict=True)
        for at, (file, line) in enumerate(places):
            row = {role: values[at] for role, values in rows.items()}
            cut = {role: value[:LONGEST] for role, value in row.items() if value is not None}
            name = row.get(self.kind.key)
            kept = name if reason == "duplicate id" else None
            payload = json.dumps(cut, ensure_ascii=False)
            self._add(reason, (row.get("tenant"), name, file, line, kept, payload))

    def _add(self, reason: str, row: tuple[Any, ...]) -> None:
        if not self._heard:
            return
        self._tally.drop(reason, f"{row[2]}" if row[3] is None else f"{row[2]}:{row[3]}")
        self._waiting.append((reason, *row))
        if len(self._waiting) >= FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            names = ("reason", "tenant", "id", "file", "line", "represented_by", "payload")
            columns: dict[str, Any] = dict(zip(names, map(list, zip(*self._waiting, strict=True)), strict=True))
            payloads = pa.array(columns["payload"], pa.string())
            masked = self._masking(payloads) if self._masking else payloads
            columns["payload"] = pa.array([text and text[:PAYLOAD] for text in masked.to_pylist()], pa.string())
            self._output.reject(f"ingest.{self.name}", self.kind.table, columns)
            self._waiting = []

    def tally(self) -> Tally:
        """Write the last rejects; return the counts since the last call, and begin anew."""
        self._flush()
        tally, self._tally = self._tally, Tally(self.kind.foreign)
        return tally

    def close(self, share: float) -> None:
        """Write the last rejects and the funnel step.

        Raises:
            InputError: nothing was read.
            TooManyRejects: more than `share` of the rows, from 0 to 1, could not be read.
        """
        tally = self.tally()
        tally.check(self._path, self.name, self.kind.columns, share)
        self._output.count(tally.step(self.name))
