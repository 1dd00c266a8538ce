"""Record rejected rows with their reasons, and count all rows, so that none disappears unnoticed."""

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
    """Row counts of an ingest.

    Attributes:
        rows: rows read.
        reasons: rejected rows by reason.
        examples: one location (file, or file:line) per reason.
        other_kinds: reasons of rows that are readable but of another kind, such as other events.
    """

    rows: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    other_kinds: list[str] = field(default_factory=list)

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> "RowCounts":
        """Restore counts from `facts`."""
        return cls(**facts | {"reasons": Counter(facts["reasons"])})

    def facts(self) -> dict[str, Any]:
        """The counts as plain values."""
        return asdict(self) | {"reasons": dict(sorted(self.reasons.items()))}

    def drop(self, reason: str, example: str, rows: int = 1, *, other_kind: bool = False) -> None:
        """Count rejected rows; `other_kind`: they are of another kind, not unreadable."""
        self.reasons[reason] += rows
        self.examples.setdefault(reason, example)
        if other_kind and reason not in self.other_kinds:
            self.other_kinds.append(reason)

    def add(self, other: "RowCounts") -> None:
        """Add other counts."""
        self.rows += other.rows
        self.reasons += other.reasons
        self.examples = other.examples | self.examples
        self.other_kinds += [reason for reason in other.other_kinds if reason not in self.other_kinds]

    @property
    def n_kept(self) -> int:
        """Rows that were not rejected."""
        return self.rows - self.reasons.total()

    @property
    def n_own(self) -> int:
        """Rows read, without those of another kind."""
        return self.rows - sum(self.reasons[reason] for reason in self.other_kinds)

    def step(self, kind: str) -> FunnelStep:
        """The funnel step of these counts: rows in, rows out, and drops by reason; `kind` names the input."""
        dropped = {reason: count for reason, count in sorted(self.reasons.items()) if count}
        return FunnelStep(f"ingest.{kind}", "rows", self.rows, "rows", self.n_kept, dropped)

    def check(self, path: str, kind: str, columns: str, share: float) -> None:
        """Check that enough rows are readable.

        Args:
            path: the source as given by the user.
            kind: expected content, such as `documents`.
            columns: settings section of its columns.
            share: maximum share of rejects, 0 to 1.

        Raises:
            InputError: there are no rows.
            TooManyRejects: more than `share` of the rows, or all, are unreadable.
        """
        if not self.n_own:
            raise InputError(f"{path} contains no {kind}: every file is empty; check the path")
        if self.n_own - self.n_kept > share * self.n_own or not self.n_kept:
            raise TooManyRejects(self._limit_message(path, columns, share))

    def main_reasons(self) -> str:
        """The three most common reasons, with an example location each."""
        reasons = [item for item in self.reasons.most_common() if item[0] not in self.other_kinds][:3]
        return "; ".join(f"{reason}: {count}, such as {self.examples[reason]}" for reason, count in reasons)

    def remedy(self) -> str:
        """Advice on how to convert a file with text that is not UTF-8; empty if there is none."""
        name = self.examples.get(NOT_UTF8, "").rpartition("/")[2].partition(":")[0]
        return f"if it is Latin-1: {recoding(name, LATIN)}; " if self.reasons[NOT_UTF8] and name else ""

    def _limit_message(self, path: str, columns: str, share: float) -> str:
        exceeded_limit = f", more than {share:.0%}" if self.n_kept else ""
        return (
            f"{self.n_own - self.n_kept} of {self.n_own} rows of {path} are unreadable{exceeded_limit} "
            f"({self.main_reasons()}); {self.remedy()}check {columns} and the file, or raise ingest.max_reject_share"
        )


SHORT_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
ESCAPES = SHORT_ESCAPES | {chr(code): f"\\u{code:04x}" for code in range(32) if chr(code) not in SHORT_ESCAPES}
# Characters that JSON escapes. A column without any of them is not searched for each one.
ESCAPED_PATTERN = r'[\x00-\x1f"\\]'


def json_of(columns: Mapping[str, pa.Array], longest: int) -> pa.Array:
    """One JSON object per row, without the roles whose value is null.

    Args:
        columns: values by role; JSON keys are the roles.
        longest: maximum number of characters of a value; the rest is cut off.
    """
    # Arrow's null_handling="skip" would drop a row of only nulls.
    members = [pc.fill_null(_member(role, values, longest), "") for role, values in columns.items()]
    joined_members = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*members, ""), 0, -2)  # without last comma
    return pc.binary_join_element_wise("{", joined_members, "}", "")


def _member(role: str, values: pa.Array, longest: int) -> pa.Array:
    """A `"role": "value", ` per row, escaped; null for null."""
    texts = pc.utf8_slice_codeunits(values.cast(pa.string()), 0, longest)
    if pc.any(pc.match_substring_regex(texts, ESCAPED_PATTERN)).as_py():
        for character, escaped in ESCAPES.items():
            texts = pc.replace_substring(texts, character, escaped)
    return pc.binary_join_element_wise(f'"{role}": "', texts, '", ', "")


MAX_PAYLOAD_BYTES = 4 * PAYLOAD_CHARACTERS  # UTF-8 has up to four bytes per character
FLUSH_ROWS = 8192  # rejects buffered before they are written
BUFFER_SCHEMA = pa.schema(
    [
        REJECTS.schema.field(name).remove_metadata()
        for name in ("reason", "tenant", "id", "file", "line", "represented_by", "payload")
    ]
)
Masking = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class RejectKind:
    """A kind of input.

    Attributes:
        table: table that the rows are read into.
        key: role of the row id.
        foreign: reject reason of files in other formats.
        columns: settings section of the column names, for messages.
    """

    table: str
    key: str
    foreign: str
    columns: str


REJECT_KINDS = {
    "documents": RejectKind("documents", "doc_id", "not a document format", "ingest.documents.columns"),
    "queries": RejectKind("raw_queries", "query_id", "not a query format", "ingest.queries.columns"),
    "labels": RejectKind("manual_labels", "document", "not a label format", "evaluate.human_labels"),
    "judgments": RejectKind("judgments", "document", "not a judgment format", "the columns"),
    "impressions": RejectKind("impressions", "event_id", "not a log format", "logs.columns"),
}


class RejectSink(Protocol):
    """Receives rejects, progress and the funnel step: an `Output`, or a sink that discards them."""

    def progress(self, done: int, total: int | None = None, note: str = "") -> None: ...

    def reject(self, stage: str, table: str, columns: dict[str, Any]) -> None: ...

    def count(self, step: FunnelStep) -> None: ...


class Intake:
    """Counts rows and collects rejects of one ingest.

    Args:
        output: receives rejects, progress and the funnel step.
        kind: a key of REJECT_KINDS.
        path: the source as given by the user, for messages.
        files: files to be read; their bytes are the total of the progress.
        masking: applied to payloads before they are truncated.
    """

    def __init__(
        self, output: RejectSink, kind: str, path: str, files: Sequence[InputFile], masking: Masking | None = None
    ) -> None:
        self._output = output
        self.name = kind
        self.kind = REJECT_KINDS[kind]
        self._path = path
        self._total = sum(file.size for file in files)
        self._finished = 0
        self._tally = RowCounts()
        self._rows: list[tuple[str | int | None, ...]] = []
        self._tables: list[pa.Table] = []
        self._masking = masking
        self._is_active = True
        self.remarks: dict[str, None] = {}

    @property
    def counts(self) -> RowCounts:
        """The counts since the last `tally`."""
        return self._tally

    def expect(self, files: Iterable[InputFile]) -> None:
        """Add files to be read to the total."""
        self._total += sum(file.size for file in files)

    def count_rows(self, rows: int) -> None:
        """Count rows read; a negative number corrects an earlier count."""
        self._tally.rows += rows * self._is_active

    def set_position(self, position: int) -> None:
        """Report the position in the open file, in bytes."""
        if self._is_active:
            self._output.progress(self._finished + position, self._total)

    def add_remark(self, sentence: str) -> None:
        """Record a remark about a file, shown by input checks."""
        self.remarks[sentence] = None

    def close_file(self, file: InputFile) -> None:
        """Report a file as completely read."""
        self._finished += file.size * self._is_active
        self.set_position(0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Disable counting, for rows that are only looked up and counted elsewhere."""
        self._is_active = False
        try:
            yield
        finally:
            self._is_active = True

    def reject(
        self, reason: str, file: str, line: int | None, payload: str | None, *, other_kind: bool = False
    ) -> None:
        """Reject an unreadable row; its payload is truncated to 500 characters."""
        if self._is_active:
            self._tally.drop(reason, _location(file, line), other_kind=other_kind)
            self._rows.append((reason, None, None, file, line, None, payload and payload[:MAX_PAYLOAD_BYTES]))
            self._flush(FLUSH_ROWS)

    def reject_file(self, file: InputFile) -> None:
        """Reject a file of another kind or a skipped one; it counts as a row, but not as unreadable."""
        self.count_rows(1)
        self.reject(file.skipped or self.kind.foreign, file.name, None, None, other_kind=True)

    def drop(self, reason: str, block: RowBlock, *, other_kind: bool = False) -> None:
        """Reject rows that are readable but unusable; `other_kind`: they are of another kind."""
        if not (self._is_active and len(block)):
            return
        self._gather()
        line = block.lines[0].as_py()
        self._tally.drop(reason, _location(block.files[0].as_py(), line), len(block), other_kind=other_kind)
        row_ids = block.columns.get(self.kind.key, block.nulls())
        columns = {
            "reason": pa.repeat(reason, len(block)),
            "tenant": block.columns.get("tenant", block.nulls()),
            "id": row_ids,
            "file": block.files,
            "line": block.lines,
            "represented_by": row_ids if reason == "duplicate id" else block.nulls(),
            "payload": json_of(block.columns, MAX_PAYLOAD_BYTES),
        }
        self._tables.append(pa.table(columns, schema=BUFFER_SCHEMA))
        self._flush(FLUSH_ROWS)

    def _gather(self) -> None:
        """Convert the buffered single rows to a table."""
        if self._rows:
            columns = [list(column) for column in zip(*self._rows, strict=True)]
            self._tables.append(pa.table(columns, schema=BUFFER_SCHEMA))
            self._rows = []

    def _flush(self, min_rows: int) -> None:
        """Write the buffer if it has at least `min_rows` rows."""
        if len(self._rows) + sum(table.num_rows for table in self._tables) < min_rows:
            return
        self._gather()
        buffered = pa.concat_tables(self._tables).combine_chunks()
        columns = {name: buffered[name] for name in buffered.schema.names}
        if self._masking:
            columns["payload"] = self._masking(columns["payload"].combine_chunks())
        self._output.reject(f"ingest.{self.name}", self.kind.table, columns)
        self._tables = []

    def tally(self) -> RowCounts:
        """Write buffered rejects; returns the counts since the last call and resets them."""
        self._flush(1)
        tally = self._tally
        self._tally = RowCounts()
        return tally

    def close(self, share: float) -> None:
        """Write buffered rejects and the funnel step.

        Raises:
            InputError: there are no rows.
            TooManyRejects: more than `share` of the rows are unreadable.
        """
        tally = self.tally()
        tally.check(self._path, self.name, self.kind.columns, share)
        self._output.count(tally.step(self.name))


def _location(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"


@dataclass(frozen=True)
class OtherKind:
    """Rejects rows as being of another kind, which do not count as unreadable."""

    intake: Intake

    def drop(self, reason: str, block: RowBlock) -> None:
        self.intake.drop(reason, block, other_kind=True)
