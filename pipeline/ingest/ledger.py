"""The rows that are turned away, and the count of those that came in: none vanishes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts import Output
from pipeline.ingest.block import Block
from pipeline.ingest.files import File
from pipeline.ingest.payload import json_of
from pipeline.ingest.tally import Tally
from schemas.tables import REJECTS

PAYLOAD = 500
LONGEST = 4 * PAYLOAD
FLUSH_ROWS = 8192
WAITING = pa.schema(
    [
        REJECTS.schema.field(name).remove_metadata()
        for name in ("reason", "tenant", "id", "file", "line", "represented_by", "payload")
    ]
)
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
        self._tally = Tally()
        self._rows: list[tuple[str | int | None, ...]] = []
        self._tables: list[pa.Table] = []
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

    def reject(self, reason: str, file: str, line: int | None, payload: str | None, *, aside: bool = False) -> None:
        """Turn away one row that could not be read; its payload is cut to 500 characters."""
        if self._heard:
            self._tally.drop(reason, _place(file, line), aside=aside)
            self._rows.append((reason, None, None, file, line, None, payload and payload[:LONGEST]))
            self._flush(FLUSH_ROWS)

    def foreign(self, file: File) -> None:
        """Turn away a file of another kind; it counts as a row, but not as an unreadable one."""
        self.saw(1)
        self.reject(self.kind.foreign, file.name, None, None, aside=True)

    def drop(self, reason: str, block: Block, *, aside: bool = False) -> None:
        """Turn away rows that were read but cannot be used; `aside`: since they are of another kind."""
        if not (self._heard and len(block)):
            return
        self._gather()
        line = block.lines[0].as_py()
        self._tally.drop(reason, _place(block.files[0].as_py(), line), len(block), aside=aside)
        names = block.columns.get(self.kind.key, block.nulls())
        columns = {
            "reason": pa.repeat(reason, len(block)),
            "tenant": block.columns.get("tenant", block.nulls()),
            "id": names,
            "file": block.files,
            "line": block.lines,
            "represented_by": names if reason == "duplicate id" else block.nulls(),
            "payload": json_of(block.columns, LONGEST),
        }
        self._tables.append(pa.table(columns, schema=WAITING))
        self._flush(FLUSH_ROWS)

    def _gather(self) -> None:
        """Make a table of the single rows that wait."""
        if self._rows:
            columns = [list(column) for column in zip(*self._rows, strict=True)]
            self._tables.append(pa.table(columns, schema=WAITING))
            self._rows = []

    def _flush(self, least: int) -> None:
        """Write what waits, if that is at least so many rows."""
        if len(self._rows) + sum(table.num_rows for table in self._tables) < least:
            return
        self._gather()
        waiting = pa.concat_tables(self._tables).combine_chunks()
        columns = {name: waiting[name] for name in waiting.schema.names}
        payloads = columns["payload"].combine_chunks()
        masked = self._masking(payloads) if self._masking else payloads
        columns["payload"] = pc.utf8_slice_codeunits(masked, 0, PAYLOAD)
        self._output.reject(f"ingest.{self.name}", self.kind.table, columns)
        self._tables = []

    def tally(self) -> Tally:
        """Write the last rejects; return the counts since the last call, and begin anew."""
        self._flush(1)
        tally, self._tally = self._tally, Tally()
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


def _place(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"


@dataclass(frozen=True)
class Aside:
    """Keeps rows of another kind in a ledger: they do not count as unreadable."""

    ledger: Ledger

    def drop(self, reason: str, block: Block) -> None:
        self.ledger.drop(reason, block, aside=True)
