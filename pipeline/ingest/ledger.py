"""The count of rows that came in, and of those that were turned away: none vanishes."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pipeline.artifacts import FunnelStep, Output
from pipeline.errors import InputError, TooManyRejects
from pipeline.ingest.block import Block
from pipeline.ingest.files import File

PAYLOAD = 500
FLUSH_ROWS = 8192
FOREIGN = {"documents": "not a document format", "queries": "not a query format"}


class Ledger:
    """Rows in and rejects of one ingest.

    Args:
        output: where rejects, progress and the funnel step go.
        kind: `documents` or `queries`.
        path: the source as the user named it, for messages.
        files: the files that will be read, for the total of the progress, in bytes.
    """

    def __init__(self, output: Output, kind: str, path: str, files: Sequence[File]) -> None:
        self._output = output
        self.kind = kind
        self._path = path
        self._table, self._key = ("documents", "doc_id") if kind == "documents" else ("raw_queries", "query_id")
        self._total = sum(file.size for file in files)
        self._finished = 0
        self._rows = 0
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._waiting: list[tuple[Any, ...]] = []

    def saw(self, rows: int) -> None:
        """Count rows on their way in, good and bad."""
        self._rows += rows

    def at(self, position: int) -> None:
        """Report how far the open file is read, in bytes."""
        self._output.progress(self._finished + position, self._total)

    def closed(self, file: File) -> None:
        """Report a file as read to its end."""
        self._finished += file.size
        self.at(0)

    def reject(self, reason: str, file: str, line: int | None, payload: str | None) -> None:
        """Turn away one row that could not be read; its payload is cut to 500 characters."""
        self._add(reason, (None, None, file, line, None, payload and payload[:PAYLOAD]))

    def foreign(self, file: File) -> None:
        """Turn away a file of another kind; it counts as a row, but not as an unreadable one."""
        self.saw(1)
        self.reject(FOREIGN[self.kind], file.name, None, None)

    def drop(self, reason: str, block: Block) -> None:
        """Turn away rows that were read but cannot be used."""
        rows = {role: values.to_pylist() for role, values in block.columns.items()}
        places = zip(block.files.to_pylist(), block.lines.to_pylist(), strict=True)
        for at, (file, line) in enumerate(places):
            row = {role: values[at] for role, values in rows.items()}
            cut = {role: value[:PAYLOAD] for role, value in row.items() if value is not None}
            name = row.get(self._key)
            kept = name if reason == "duplicate id" else None
            payload = json.dumps(cut, ensure_ascii=False)[:PAYLOAD]
            self._add(reason, (row.get("tenant"), name, file, line, kept, payload))

    def _add(self, reason: str, row: tuple[Any, ...]) -> None:
        self._reasons[reason] += 1
        if reason not in self._examples:
            self._examples[reason] = row[2] if row[3] is None else f"{row[2]}:{row[3]}"
        self._waiting.append((reason, *row))
        if len(self._waiting) >= FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            names = ("reason", "tenant", "id", "file", "line", "represented_by", "payload")
            columns = dict(zip(names, map(list, zip(*self._waiting, strict=True)), strict=True))
            self._output.reject(f"ingest.{self.kind}", self._table, columns)
            self._waiting = []

    def close(self, kept: int, share: float) -> None:
        """Write the last rejects and the funnel step.

        Raises:
            InputError: nothing was read.
            TooManyRejects: more than `share` of the rows, from 0 to 1, could not be read.
        """
        self._flush()
        rows = self._rows - self._reasons[FOREIGN[self.kind]]
        if not rows:
            raise InputError(f"{self._path} holds no {self.kind}: every file is empty; check the path")
        if rows - kept > share * rows or not kept:
            raise TooManyRejects(self._complaint(rows, kept, share))
        dropped = {reason: count for reason, count in sorted(self._reasons.items()) if count}
        self._output.count(FunnelStep(f"ingest.{self.kind}", "rows", self._rows, "rows", kept, dropped))

    def _complaint(self, rows: int, kept: int, share: float) -> str:
        worst = [item for item in self._reasons.most_common(4) if item[0] != FOREIGN[self.kind]][:3]
        reasons = "; ".join(f"{reason}: {count}, such as {self._examples[reason]}" for reason, count in worst)
        bound = f", more than {share:.0%}" if kept else ""
        return (
            f"{rows - kept} of {rows} rows of {self._path} could not be read{bound} ({reasons}); "
            f"check ingest.{self.kind}.columns and the file, or raise ingest.max_reject_share"
        )
