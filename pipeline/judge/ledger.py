"""Verdicts of all runs by (judge id, query hash, chunk hash), so that none is paid for twice.

ROOT/verdicts/<hash of the judge id>/judge.json       the id in words
                                    /NAME.parquet     verdicts that came together; written whole, never changed
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.memory.owner_migration import EarlierVersion
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.judge.port import REPLIES, Earlier, check_replies

VERDICT_ROWS = RowKind("verdicts", "judge", ("query_hash", "chunk_hash"), REPLIES, answer="relevant")

_TOKEN_COLUMNS = ("prompt_tokens", "cached_tokens", "completion_tokens")

_COUNT_COLUMNS = ("verdicts", "relevant", "nulls", "contradicted", *_TOKEN_COLUMNS, "bytes", "parts")

USAGE_SCHEMA = pa.schema(
    [
        pa.field("judge_id", pa.string()),
        *(pa.field(name, pa.int64()) for name in _COUNT_COLUMNS),
        pa.field("damaged", pa.list_(pa.string())),
    ]
)
"""Contents of the ledger per judge.

`contradicted` is null if no verdict records it; `damaged` lists ignored parts with the reason.
"""


class Ledger(KeyedStore):
    """Verdicts of any number of judges; processes and machines may append concurrently.

    Of several verdicts on a pair, the earliest with a label counts (by write time of its part), else the latest without
    one; so all readers agree.

    Args:
        root: a folder or an s3:// prefix; None: the user's cache folder.

    Raises:
        ArtifactError: the root is neither.
    """

    def __init__(self, root: str | None) -> None:
        super().__init__(root, VERDICT_ROWS)

    def add(self, judge_id: str, pairs: pa.Table, replies: pa.Table) -> None:
        """Append verdicts atomically, as a new part.

        Args:
            judge_id: id of the judge.
            pairs: table with at least the columns `query_hash` and `chunk_hash`.
            replies: rows of `REPLIES`, in the order of the pairs.

        Raises:
            ArtifactError: the part cannot be written.
            ValueError: replies do not match the pairs, invalid hashes, or a null label without an error.
        """
        check_replies(judge_id, pairs, replies)
        hashes = {name: pairs[name] for name in VERDICT_ROWS.key}
        self.append(judge_id, pa.table(hashes | dict(zip(replies.column_names, replies.columns, strict=True))))

    def inherit_function(self, judge_id: str, earlier: Earlier | None) -> Callable[[pa.Table], bool]:
        """A function that copies verdicts of an earlier version for pairs without one; it returns whether it found any.

        Args:
            judge_id: id of the judge's present version.
            earlier: the earlier version; None: the function does nothing.
        """
        if earlier is None:
            return lambda _pairs: False
        earlier_version = EarlierVersion(self, judge_id, earlier.judge_id)
        return lambda pairs: (
            bool(earlier_version) and earlier_version.hand_down(pairs.filter(pa.array(earlier.is_unchanged(pairs))))
        )

    def usage(self) -> pa.Table:
        """One row of `USAGE_SCHEMA` per judge, by judge_id; tokens of superseded verdicts are not counted."""
        rows = []
        for judge_id in self.owners():
            entries = self.open(judge_id)
            usage_rows = entries.rows(["relevant", "contradicted", *_TOKEN_COLUMNS])
            sums = {name: pc.sum(usage_rows[name], min_count=0).as_py() for name in usage_rows.column_names}
            sums["contradicted"] = pc.sum(usage_rows["contradicted"]).as_py()
            counts = {"judge_id": judge_id, "verdicts": len(usage_rows), "nulls": usage_rows["relevant"].null_count}
            rows.append(counts | sums | self.facts(judge_id, entries))
        return pa.Table.from_pylist(rows, USAGE_SCHEMA)
