"""Verdicts kept across runs by (judge id, query hash, chunk hash): paid for once, whoever asks next.

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

VERDICTS = RowKind("verdicts", "judge", ("query_hash", "chunk_hash"), REPLIES, answer="relevant")

_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens")

_COUNTS = ("verdicts", "relevant", "nulls", "contradicted", *_TOKENS, "bytes", "parts")

USAGE = pa.schema(
    [
        pa.field("judge_id", pa.string()),
        *(pa.field(name, pa.int64()) for name in _COUNTS),
        pa.field("damaged", pa.list_(pa.string())),
    ]
)
"""What the ledger holds of a judge.

`contradicted` is null where no verdict says whether it is; `damaged` names the parts that are not trusted, and why.
"""


class Ledger(KeyedStore):
    """Verdicts of any number of judges below one root; any number of processes and machines append at once.

    Of several verdicts on one pair one stands, the same for every reader of the same parts: the earliest that gave a
    label, by the time at which its part was written; where none did, the latest.

    Args:
        root: a folder or an s3:// prefix; null: the user's cache folder, beside the embedding cache.

    Raises:
        ArtifactError: the root is neither.
    """

    def __init__(self, root: str | None) -> None:
        super().__init__(root, VERDICTS)

    def add(self, judge_id: str, pairs: pa.Table, replies: pa.Table) -> None:
        """Keep verdicts in a part of their own: whole or not at all.

        Args:
            judge_id: who gave them.
            pairs: the pairs, with at least `query_hash` and `chunk_hash`.
            replies: rows of `REPLIES`, in the order of the pairs.

        Raises:
            ArtifactError: the part cannot be written.
            ValueError: other rows than announced, a hash of another form, or a null label without an error.
        """
        check_replies(judge_id, pairs, replies)
        hashes = {name: pairs[name] for name in VERDICTS.key}
        self.append(judge_id, pa.table(hashes | dict(zip(replies.column_names, replies.columns, strict=True))))

    def inherit_function(self, judge_id: str, earlier: Earlier | None) -> Callable[[pa.Table], bool]:
        """Hands a judge's earlier verdicts down: a function of pairs that lack one, true where it found some.

        Args:
            judge_id: who inherits.
            earlier: its earlier version; None: there is nothing to inherit.
        """
        if earlier is None:
            return lambda _pairs: False
        parent_ledger = EarlierVersion(self, judge_id, earlier.judge_id)
        return lambda pairs: (
            bool(parent_ledger) and parent_ledger.hand_down(pairs.filter(pa.array(earlier.alike(pairs))))
        )

    def usage(self) -> pa.Table:
        """One row of `USAGE` per judge, by judge_id; tokens are those of the verdicts that stand."""
        rows = []
        for judge_id in self.owners():
            entries = self.open(judge_id)
            usage_rows = entries.rows(["relevant", "contradicted", *_TOKENS])
            sums = {name: pc.sum(usage_rows[name], min_count=0).as_py() for name in usage_rows.column_names}
            sums["contradicted"] = pc.sum(usage_rows["contradicted"]).as_py()
            counts = {"judge_id": judge_id, "verdicts": len(usage_rows), "nulls": usage_rows["relevant"].null_count}
            rows.append(counts | sums | self.facts(judge_id, entries))
        return pa.Table.from_pylist(rows, USAGE)
