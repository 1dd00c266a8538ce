"""Verdicts kept across runs by (judge id, query hash, chunk hash): paid for once, whoever asks next.

ROOT/verdicts/<hash of the judge id>/judge.json       the id in words
                                    /NAME.parquet     verdicts that came together; written whole, never changed
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Collection

import pyarrow as pa

from pipeline.artifacts.store import Store
from pipeline.encoders.cache import default_root
from pipeline.errors import ArtifactError
from pipeline.judges.compaction import compact, small_parts
from pipeline.judges.known import Known
from pipeline.judges.verdict_parts import ENDING, encode, verdict_rows

_TOP = "verdicts"
_RECORD = "judge.json"

_COUNTS = ("verdicts", "relevant", "nulls", "prompt_tokens", "cached_tokens", "completion_tokens")

USAGE = pa.schema(
    [
        pa.field("judge_id", pa.string()),
        *(pa.field(name, pa.int64()) for name in (*_COUNTS, "bytes", "parts")),
        pa.field("damaged", pa.list_(pa.string())),
    ]
)
"""What the ledger holds of a judge; `damaged` names the parts that are not trusted, with the reason."""


class Ledger:
    """Verdicts of any number of judges below one root; any number of processes and machines append at once.

    Of several verdicts on one pair one stands, the same for every reader of the same parts: the earliest that gave a
    label, by the time at which its part was written; where none did, the latest.

    Args:
        root: a folder or an s3:// prefix; null: the user's cache folder, beside the embedding cache.

    Raises:
        ArtifactError: the root is neither.
    """

    def __init__(self, root: str | None) -> None:
        self.store = Store(root or default_root())
        self._recorded: set[str] = set()

    def append(self, judge_id: str, pairs: pa.Table, replies: pa.Table) -> None:
        """Keep verdicts in a part of their own: whole or not at all.

        Args:
            judge_id: who gave them.
            pairs: the pairs, with at least `query_hash` and `chunk_hash`.
            replies: rows of `REPLIES`, in the order of the pairs.

        Raises:
            ArtifactError: the part cannot be written.
            ValueError: other rows than announced, a hash of another form, or a null label without an error.
        """
        now = time.time_ns()
        rows = verdict_rows(judge_id, pairs, replies, now)
        if not rows.num_rows:
            return
        folder = _folder(judge_id)
        try:
            self._record(judge_id)
            # The name is this writer's alone, also among machines.
            self.store.write(f"{folder}/{now:020d}-{uuid.uuid4().hex}{ENDING}", encode(rows, judge_id))
        except OSError as error:
            place = self.store.path(folder)
            raise ArtifactError(f"{rows.num_rows} verdicts cannot be written to {place}: {error}") from error

    def open(self, judge_id: str) -> Known:
        """The judge's verdicts as they are now; `Known.refresh` looks again."""
        known = Known(self.store, _folder(judge_id), judge_id)
        known.refresh()
        return known

    def small_parts(self, judge_id: str) -> int:
        """How many parts `compact` would merge."""
        return len(small_parts(self.store.sizes(_folder(judge_id))))

    def compact(self, judge_id: str) -> int:
        """Merge the judge's small parts while others read and append; returns how many parts fewer there are."""
        return compact(self.store, _folder(judge_id), judge_id)

    def usage(self) -> pa.Table:
        """One row of `USAGE` per judge, by judge_id; tokens are those of the verdicts that stand."""
        rows = []
        for judge_id in self._judge_ids():
            known = self.open(judge_id)
            sizes = self.store.sizes(_folder(judge_id))
            parts = sum(name.endswith(ENDING) for name in sizes)
            facts = {"bytes": sum(sizes.values()), "parts": parts, "damaged": known.damaged}
            rows.append({"judge_id": judge_id} | known.counts(*_COUNTS[3:]) | facts)
        return pa.Table.from_pylist(sorted(rows, key=lambda row: str(row["judge_id"])), USAGE)

    def prune(self, judge_ids: Collection[str] | None = None) -> int:
        """Delete judges' verdicts, all judges' where none is named; returns the bytes freed."""
        freed = 0
        for judge_id in self._judge_ids() if judge_ids is None else judge_ids:
            sizes = self.store.sizes(_folder(judge_id))
            for name in sorted(sizes, key=lambda name: name.endswith(_RECORD)):  # the record last: it stays listed
                self.store.delete(name)
            self._recorded.discard(judge_id)
            freed += sum(sizes.values())
        return freed

    def _record(self, judge_id: str) -> None:
        name = f"{_folder(judge_id)}/{_RECORD}"
        if judge_id not in self._recorded and self.store.size(name) is None:
            self.store.write(name, json.dumps({"judge_id": judge_id}, indent=1).encode())
        self._recorded.add(judge_id)

    def _judge_ids(self) -> list[str]:
        found = []
        for folder in self.store.folders(_TOP):
            name = f"{_TOP}/{folder}/{_RECORD}"
            data = self.store.read(name)
            if data is None:
                continue
            try:
                judge_id = json.loads(data)["judge_id"]
                if _folder(judge_id) != f"{_TOP}/{folder}":
                    raise ValueError("it names a judge of another folder")
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ArtifactError(f"{self.store.path(name)} is damaged ({error}); delete it") from error
            found.append(judge_id)
        return found


def _folder(judge_id: str) -> str:
    return f"{_TOP}/{hashlib.sha256(judge_id.encode()).hexdigest()[:32]}"
