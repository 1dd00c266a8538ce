"""The rows that are turned away, with their reasons, and the count of those that came in: none vanishes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep
from darklode.pipeline.base.artifacts.output import PAYLOAD_CHARACTERS
from darklode.pipeline.base.errors import InputError, TooManyRejects
from darklode.pipeline.ingest.files import InputFile
from darklode.pipeline.ingest.readers.sniff import LATIN, recoding
from darklode.pipeline.ingest.rows import RowBlock
from darklode.schemas.tables import REJECTS

NOT_UTF8 = "not UTF-8"


@dataclass
class RowCounts:
    """Counts of some rows.

    Attributes:
        rows: all that came in.
        reasons: how many were turned away, by reason.
        examples: a place (file, or file:line) for each reason.
        aside: the reasons that tell of another kind of row, not of one that could not be read.
    """

    rows: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    aside: list[str] = field(default_factory=list)

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> "RowCounts":
        """A tally from the plain values that `facts` gave."""
        return cls(**facts | {"reasons": Counter(facts["reasons"])})

    def facts(self) -> dict[str, Any]:
        """The tally as plain values."""
        return asdict(self) | {"reasons": dict(sorted(self.reasons.items()))}

    def drop(self, reason: str, example: str, rows: int = 1, *, aside: bool = False) -> None:
        """Count rows that are turned away; `aside`: since they are of another kind."""
        self.reasons[reason] += rows
        self.examples.setdefault(reason, example)
        if aside and reason not in self.aside:
            self.aside.append(reason)

    def add(self, other: "RowCounts") -> None:
        """Count another's rows, too."""
        self.rows += other.rows
        self.reasons += other.reasons
        self.examples = other.examples | self.examples
        self.aside += [reason for reason in other.aside if reason not in self.aside]

    @property
    def n_kept(self) -> int:
        return self.rows - self.reasons.total()

    @property
    def n_own(self) -> int:
        """The rows that came in, without those of another kind."""
        return self.rows - sum(self.reasons[reason] for reason in self.aside)

    def step(self, kind: str) -> FunnelStep:
        """The funnel's step."""
        dropped = {reason: count for reason, count in sorted(self.reasons.items()) if count}
        return FunnelStep(f"ingest.{kind}", "rows", self.rows, "rows", self.n_kept, dropped)

    def check(self, path: str, kind: str, columns: str, share: float) -> None:
        """Check that enough of the rows could be read.

        Args:
            path: the source as the user named it.
            kind: what it holds, such as `documents`.
            columns: the setting that names its columns.
            share: the share of rows, from 0 to 1, that may be turned away.

        Raises:
            InputError: nothing was read.
            TooManyRejects: more than `share` of the rows could not be read, or none could.
        """
        if not self.n_own:
            raise InputError(f"{path} holds no {kind}: every file is empty; check the path")
        if self.n_own - self.n_kept > share * self.n_own or not self.n_kept:
            raise TooManyRejects(self._limit_message(path, columns, share))

    def main_reasons(self) -> str:
        """The three commonest reasons, with a place for each."""
        reasons = [item for item in self.reasons.most_common() if item[0] not in self.aside][:3]
        return "; ".join(f"{reason}: {count}, such as {self.examples[reason]}" for reason, count in reasons)

    def remedy(self) -> str:
        """What to do where text is no UTF-8; empty where all is."""
        name = self.examples.get(NOT_UTF8, "").rpartition("/")[2].partition(":")[0]
        return f"if it is Latin-1: {recoding(name, LATIN)}; " if self.reasons[NOT_UTF8] and name else ""

    def _limit_message(self, path: str, columns: str, share: float) -> str:
        bound = f", more than {share:.0%}" if self.n_kept else ""
        return (
            f"{self.n_own - self.n_kept} of {self.n_own} rows of {path} could not be read{bound} "
            f"({self.main_reasons()}); {self.remedy()}check {columns} and the file, or raise ingest.max_reject_share"
        )


SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
ESCAPES = SHORT | {chr(code): f"\\u{code:04x}" for code in range(32) if chr(code) not in SHORT}
SPECIAL = r'[\x00-\x1f"\\]'


def json_of(columns: Mapping[str, pa.Array], longest: int) -> pa.Array:
    """One JSON object a row, without nulls; values are cut to `longest` characters."""
    # Arrow's null_handling="skip" would leave out the whole row where all is null.
    members = [pc.fill_null(_member(role, values, longest), "") for role, values in columns.items()]
    inside = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*members, ""), 0, -2)
    return pc.binary_join_element_wise("{", inside, "}", "")


def _member(role: str, values: pa.Array, longest: int) -> pa.Array:
    texts = pc.utf8_slice_codeunits(values.cast(pa.string()), 0, longest)
    if pc.any(pc.match_substring_regex(texts, SPECIAL)).as_py():
        for character, escaped in ESCAPES.items():
            texts = pc.replace_substring(texts, character, escaped)
    return pc.binary_join_element_wise(f'"{role}": "', texts, '", ', "")


LONGEST = 4 * PAYLOAD_CHARACTERS  # UTF-8 takes up to four bytes a character
FLUSH_ROWS = 8192
WAITING = pa.schema(
    [
        REJECTS.schema.field(name).remove_metadata()
        for name in ("reason", "tenant", "id", "file", "line", "represented_by", "payload")
    ]
)
Masking = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class RejectKind:
    """What is read: the table it becomes, the role that names a row, the reason for other files, its settings."""

    table: str
    key: str
    foreign: str
    columns: str


KINDS = {
    "documents": RejectKind("documents", "doc_id", "not a document format", "ingest.documents.columns"),
    "queries": RejectKind("raw_queries", "query_id", "not a query format", "ingest.queries.columns"),
    "labels": RejectKind("manual_labels", "document", "not a label format", "evaluate.human_labels"),
    "impressions": RejectKind("impressions", "event_id", "not a log format", "logs.columns"),
}


class RejectSink(Protocol):
    """Where rejects, progress and the funnel's step go: an `Output`, or nowhere, where a source is only tried."""

    def progress(self, done: int, total: int | None = None, note: str = "") -> None: ...

    def reject(self, stage: str, table: str, columns: dict[str, Any]) -> None: ...

    def count(self, step: FunnelStep) -> None: ...


class Intake:
    """Rows in and rejects of one ingest.

    Args:
        output: where rejects, progress and the funnel step go.
        kind: one of KINDS.
        path: the source as the user named it, for messages.
        files: the files that will be read, for the total of the progress, in bytes.
        masking: what is done to payloads before they are cut.
    """

    def __init__(
        self, output: RejectSink, kind: str, path: str, files: Sequence[InputFile], masking: Masking | None = None
    ) -> None:
        self._output = output
        self.name = kind
        self.kind = KINDS[kind]
        self._path = path
        self._total = sum(file.size for file in files)
        self._finished = 0
        self._tally = RowCounts()
        self._rows: list[tuple[str | int | None, ...]] = []
        self._tables: list[pa.Table] = []
        self._masking = masking
        self._heard = True
        self.remarks: dict[str, None] = {}

    def expect(self, files: Iterable[InputFile]) -> None:
        """Add files to those that will be read."""
        self._total += sum(file.size for file in files)

    def count_rows(self, rows: int) -> None:
        """Count rows on their way in, good and bad; a negative number takes back what turned out to be none."""
        self._tally.rows += rows * self._heard

    def set_position(self, position: int) -> None:
        """Report how far the open file is read, in bytes."""
        if self._heard:
            self._output.progress(self._finished + position, self._total)

    def add_remark(self, sentence: str) -> None:
        """Note what is worth knowing of a file; a trial tells it."""
        self.remarks[sentence] = None

    def close_file(self, file: InputFile) -> None:
        """Report a file as read to its end."""
        self._finished += file.size * self._heard
        self.set_position(0)

    @contextmanager
    def paused(self) -> Iterator[None]:
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

    def reject_file(self, file: InputFile) -> None:
        """Turn away a file of another kind, or a skipped one; it counts as a row, but not as an unreadable one."""
        self.count_rows(1)
        self.reject(file.skipped or self.kind.foreign, file.name, None, None, aside=True)

    def drop(self, reason: str, block: RowBlock, *, aside: bool = False) -> None:
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
        if self._masking:
            columns["payload"] = self._masking(columns["payload"].combine_chunks())
        self._output.reject(f"ingest.{self.name}", self.kind.table, columns)
        self._tables = []

    def tally(self) -> RowCounts:
        """Write the last rejects; return the counts since the last call, and begin anew."""
        self._flush(1)
        tally, self._tally = self._tally, RowCounts()
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
class SetAside:
    """Keeps rows of another kind apart: they do not count as unreadable."""

    intake: Intake

    def drop(self, reason: str, block: RowBlock) -> None:
        self.intake.drop(reason, block, aside=True)
