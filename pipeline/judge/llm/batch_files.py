"""Files for batch services in OpenAI's format, which `vllm run-batch` and hosted services read.

One request per line, one response per line, joined by `custom_id`. Requests are those that the judge itself would send,
so the responses are this judge's verdicts.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.chunk_texts import TenantChunks, tenants
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.base.memory.keys import KeyIndex
from darklode.pipeline.base.memory.store import Entries
from darklode.pipeline.base.remote.budget import Usage
from darklode.pipeline.base.remote.call_errors import BadReply
from darklode.pipeline.base.remote.chat import completion_of
from darklode.pipeline.judge.ledger import VERDICT_ROWS, Ledger
from darklode.pipeline.judge.llm.prompt import PairText
from darklode.pipeline.judge.llm.reply_parsing import LlmReading, read, reply_batch
from darklode.pipeline.judge.llm.response_formats import RequestTemplate
from darklode.pipeline.judge.pairs import pair_blocks
from darklode.pipeline.judge.port import Earlier

MAX_REQUESTS = 50_000
MAX_BYTES = 200_000_000
"""OpenAI's limits for a file of requests; vLLM has none. Requests beyond a limit go to another file."""

_REQUEST_URL = "/v1/chat/completions"
_STORE_AT_ONCE = 1 << 13  # responses per write to the ledger; bounds memory
_CUT_SUFFIX = "-cut"  # suffix of a custom_id whose chunk was truncated
_CUSTOM_ID = re.compile(rf"([0-9a-f]{{8}})_([\w-]{{43}})({_CUT_SUFFIX})?", re.ASCII)
_HASH_COLUMNS = ("query_hash", "chunk_hash")


@dataclass(frozen=True)
class CustomId:
    """A line's `custom_id`, which joins a response to its request.

    Its text has at most 56 characters (letters, digits, - and _); services accept 64.

    Attributes:
        judge: `short_name` of the judge's id.
        query_hash: hash of the query, 32 hex digits.
        chunk_hash: hash of the chunk, 32 hex digits.
        cut: whether the chunk was truncated.
    """

    judge: str
    query_hash: str
    chunk_hash: str
    cut: bool

    def __str__(self) -> str:
        pair = urlsafe_b64encode(bytes.fromhex(self.query_hash + self.chunk_hash)).decode().rstrip("=")
        return f"{self.judge}_{pair}{_CUT_SUFFIX if self.cut else ''}"

    @classmethod
    def parse(cls, custom_id: object) -> CustomId | None:
        """Parse a `custom_id`; None if Darklode did not write it, or if it is not a string."""
        match = _CUSTOM_ID.fullmatch(custom_id) if isinstance(custom_id, str) else None
        if match is None:
            return None
        pair = urlsafe_b64decode(f"{match[2]}=").hex()
        return cls(match[1], pair[:32], pair[32:], cut=bool(match[3]))


def short_name(judge_id: str) -> str:
    """Compute the hash of a judge id that a `custom_id` contains: eight hex digits."""
    return sha256(judge_id.encode()).hexdigest()[:8]


def iterate_unjudged(
    tables: Tables, ledger: Ledger, judge_id: str, earlier: Earlier | None = None, under_way: KeyIndex | None = None
) -> Iterator[pa.Table]:
    """Yield the run's pairs without a verdict in the ledger, by blocks of queries; pairs with equal texts only once.

    Args:
        tables: must contain `queries`, `chunks` and `pool`.
        ledger: the verdicts; those of the judge's earlier version that are still valid are copied to this one.
        judge_id: id of the judge.
        earlier: the judge's earlier version, if there is one.
        under_way: keys of pairs to leave out, such as those submitted before; keys of yielded pairs are added.
    """
    entries = ledger.open(judge_id)
    inherit_verdicts = ledger.inherit_function(judge_id, earlier)
    seen_keys = KeyIndex() if under_way is None else under_way
    for tenant in tenants(tables, "pool"):
        for pairs in pair_blocks(tables, TenantChunks(tables, tenant)):
            new_pairs = _not_in_ledger(pairs, entries)
            if inherit_verdicts(new_pairs):
                entries.refresh()
                new_pairs = _not_in_ledger(new_pairs, entries)
            yield new_pairs.filter(pa.array(seen_keys.add_new(VERDICT_ROWS.keys(new_pairs))))


def count_unreadable(tables: Tables, ledger: Ledger, judge_id: str) -> int:
    """Count the run's pairs whose verdict in the ledger has no label (null: the reply was unreadable).

    Args:
        tables: must contain `queries`, `chunks` and `pool`.
        ledger: the verdicts.
        judge_id: id of the judge.
    """
    entries = ledger.open(judge_id)
    n_nulls = 0
    for tenant in tenants(tables, "pool"):
        for pairs in pair_blocks(tables, TenantChunks(tables, tenant)):
            n_nulls += entries.find(pairs).values["relevant"].null_count
    return n_nulls


def _not_in_ledger(pairs: pa.Table, entries: Entries) -> pa.Table:
    """Keep the pairs that have no verdict among these entries."""
    return pairs.take(pa.array(np.delete(np.arange(pairs.num_rows), entries.find(pairs).rows)))


def batch_files(blocks: Iterable[pa.Table], template: RequestTemplate, target: Path) -> Iterator[tuple[Path, int]]:
    """Write a request per pair; yields each complete file with its number of requests.

    Files are split at `MAX_REQUESTS` and `MAX_BYTES` (`calls.jsonl`, `calls-2.jsonl`, …) and written atomically.

    Args:
        blocks: tables with the columns of `PAIRS`.
        template: builds the judge's requests.
        target: path of the first file.

    Raises:
        ExportError: a file exists already; it may have been submitted, so it is never overwritten.
    """
    lines = (line for pairs in blocks for line in _lines(pairs, template))
    for number, file_lines in enumerate(_split(lines), 1):
        path = target if number == 1 else target.with_name(f"{target.stem}-{number}{target.suffix}")
        if path.exists():
            raise ExportError(f"{path} exists and may have been submitted to a service; choose another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        partial_path = path.with_name(f".{path.name}.tmp")
        n_requests = 0
        with partial_path.open("wb") as file:
            for line in file_lines:
                file.write(line)
                n_requests += 1
        partial_path.replace(path)
        yield path, n_requests


def _lines(pairs: pa.Table, template: RequestTemplate) -> Iterator[bytes]:
    """Build the lines of the file: one JSON request per pair."""
    judge = short_name(template.judge_id)
    for pair in pairs.to_pylist():  # requests are built pair by pair
        pair_text = PairText(pair["query"], pair["title"], pair["heading"], pair["text"])
        user_message, cut = template.fit_pair(pair_text, template.settings.max_chunk_tokens)
        custom_id = CustomId(judge, pair["query_hash"], pair["chunk_hash"], cut)
        header = json.dumps({"custom_id": str(custom_id), "method": "POST", "url": _REQUEST_URL})[:-1].encode()
        yield header + b', "body": ' + template.body(user_message) + b"}\n"


def _split(lines: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """Split lines into files by count and size; consume each file's lines before requesting the next file."""
    next_line = next(lines, None)

    def file() -> Iterator[bytes]:
        nonlocal next_line
        size = count = 0
        while next_line is not None and count < MAX_REQUESTS and (not count or size + len(next_line) <= MAX_BYTES):
            size += len(next_line)
            count += 1
            line = next_line
            next_line = next(lines, None)
            yield line

    while next_line is not None:
        yield file()


def read_batch(
    lines: Iterable[bytes],
    template: RequestTemplate,
    ledger: Ledger,
    spend: Callable[[Usage], None] = lambda _used: None,
) -> Counter[str]:
    """Write a batch's responses to the ledger, in any order.

    Of several responses to a request, the first label counts.

    Args:
        lines: lines of the service's output file.
        template: the judge that wrote the requests.
        ledger: receives the verdicts.
        spend: called with the tokens of each group of stored responses.

    Returns:
        Counts of requests: `verdict`; `null` (unreadable); `cut_off` (truncated, stored as null); `failed` (not
            stored). Counts of lines: `another` (judge or run), `broken`, `duplicate`, `contradict` (duplicates with
            another label), `renamed` (answered under another model's name).

    Raises:
        ArtifactError: the verdicts cannot be written.
        DarklodeError: another model answered than requested; earlier lines are stored.
    """
    judge = short_name(template.judge_id)
    counts = Counter[str]()
    buffered: list[tuple[CustomId, LlmReading]] = []
    answered: dict[CustomId, tuple[str, bool | None]] = {}
    try:
        for line in filter(bytes.strip, lines):
            kind, custom_id, reading = _read_line(line, judge, template)
            if custom_id and reading and not _is_first_label(counts, answered, kind, custom_id, reading):
                continue
            counts[kind] += 1
            if custom_id and reading:
                counts["renamed"] += bool(reading.other_model)
                buffered.append((custom_id, reading))
            if len(buffered) == _STORE_AT_ONCE:
                spend(_store_readings(buffered, template, ledger))
                buffered = []
    finally:
        spend(_store_readings(buffered, template, ledger))
    return +counts  # without kinds whose count is 0


def _is_first_label(
    counts: Counter[str],
    answered: dict[CustomId, tuple[str, bool | None]],
    kind: str,
    name: CustomId,
    reading: LlmReading,
) -> bool:
    """Whether a response is the first to its request, or its first label; others count as duplicates."""
    label = reading.values.get("relevant")
    if name not in answered:
        answered[name] = kind, label
        return True
    counts["duplicate"] += 1
    earlier_kind, earlier = answered[name]
    if earlier is None and label is not None:
        counts[earlier_kind] -= 1
        answered[name] = kind, label
        return True
    counts["contradict"] += label is not None and label != earlier
    return False


def _store_readings(buffered: list[tuple[CustomId, LlmReading]], template: RequestTemplate, ledger: Ledger) -> Usage:
    """Write readings to the ledger; returns the tokens that they used."""
    pairs = {side: pa.array([getattr(name, side) for name, _ in buffered], pa.string()) for side in _HASH_COLUMNS}
    replies = reply_batch(enumerate(reading for _, reading in buffered)).replies
    ledger.add(template.judge_id, pa.table(pairs), replies)
    return Usage(*(pc.sum(replies[name]).as_py() or 0 for name in ("prompt_tokens", "completion_tokens")))


def _read_line(line: bytes, judge: str, template: RequestTemplate) -> tuple[str, CustomId | None, LlmReading | None]:
    """Read a line: its kind (a key of `read_batch`'s counts), `custom_id` and reply, as far as they can be read."""
    try:
        record = json.loads(line)
        custom_id = record["custom_id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "broken", None, None
    name = CustomId.parse(custom_id)
    if name is None or name.judge != judge:
        return "another", None, None
    completion = _completion(record)
    if completion is None:
        return "failed", None, None
    reading = read(completion, template)
    reading.values["truncated"] = name.cut
    unreadable = "cut_off" if reading.is_truncated else "null"
    return "verdict" if reading.is_readable else unreadable, name, reading


def _completion(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The line's chat completion; None if the request failed."""
    response = record.get("response")
    if record.get("error") or not isinstance(response, dict) or response.get("status_code", 200) != 200:
        return None
    try:
        return completion_of(response.get("body") or {})
    except BadReply:
        return None
