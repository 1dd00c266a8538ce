"""A judge with a ledger: known verdicts are read from it, new ones are written to it as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.memory.keys import first_of_each
from darklode.pipeline.base.memory.store import Entries, LookupResult
from darklode.pipeline.judge.ledger import VERDICT_ROWS, Ledger
from darklode.pipeline.judge.port import Judge, Live, ReplyBatch, StreamingJudge

FLUSH_SECONDS = 2.0
"""Maximum seconds until a reply is written; a crash loses these replies and the calls in flight. Writing twice a second
costs four times as much processor time, 8 % of a call."""


class LedgerJudge(Judge):
    """A streaming judge with a ledger.

    A pair with a null verdict is requested again until it had `attempts` attempts over all runs; a null verdict without
    attempts (e.g. a refused pair) is final.

    Args:
        source: judges pairs that are missing in the ledger.
        ledger: known verdicts; gets new ones.
        attempts: maximum attempts with unreadable replies, over all runs.
    """

    def __init__(self, source: StreamingJudge, ledger: Ledger, attempts: int = 1) -> None:
        self._source, self._ledger, self._attempts = source, ledger, attempts
        self._entries: Entries | None = None
        self.hits = 0
        """Number of pairs without a call: in the ledger, also of an earlier version, or duplicates in a batch."""
        self.n_requested = 0
        """Number of pairs judged by the source."""

    @property
    def judge_id(self) -> str:
        """The id of the source."""
        return self._source.judge_id

    @property
    def facts(self) -> dict[str, int]:
        """`hits`, and `n_requested` as `asked`, for the stage's record."""
        return {"hits": self.hits, "asked": self.n_requested}

    @property
    def live(self) -> Live:
        """Number of pairs from ledger and source; the source's note."""
        return _Live(self)

    @property
    def source(self) -> StreamingJudge:
        """The judge of missing pairs."""
        return self._source

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Reply to each pair with the ledger's final verdict, which another process may have written first.

        Raises:
            ArtifactError: a verdict cannot be written.
            ValueError: the source left out a pair.
        """
        entries = self._open()
        entries_found = entries.find(pairs)
        missing = self._missing(pairs, entries_found)
        if len(missing) and self._inherit_verdicts(pairs.take(pa.array(missing))):
            entries.refresh()
            entries_found = entries.find(pairs)
            missing = self._missing(pairs, entries_found)
        self.hits += pairs.num_rows - len(missing)
        if len(missing):
            await self._ask(pairs.take(pa.array(missing)))
            entries.refresh()
            entries_found = entries.find(pairs)
        if len(entries_found.rows) < pairs.num_rows:
            lost = pairs.num_rows - len(entries_found.rows)
            raise ValueError(f"{self.judge_id}: {lost} of {pairs.num_rows} pairs have no reply in the ledger")
        return self._source.recall_replies(entries_found.values)

    @cached_property
    def _inherit_verdicts(self) -> Callable[[pa.Table], bool]:
        return self._ledger.inherit_function(self.judge_id, self._source.previous_version)

    def _open(self) -> Entries:
        self._ledger.merge_small_parts(self.judge_id)
        if self._entries is None:
            self._entries = self._ledger.open(self.judge_id)
        self._entries.refresh()
        return self._entries

    def _missing(self, pairs: pa.Table, entries_found: LookupResult) -> NDArray[np.int64]:
        """Rows without a final verdict, equal pairs once."""
        tried = pc.greater_equal(pc.fill_null(entries_found.values["attempts"], self._attempts), self._attempts)
        settled = pc.or_(pc.is_valid(entries_found.values["relevant"]), tried).to_numpy()
        rows = np.delete(np.arange(pairs.num_rows), entries_found.rows[settled])
        return rows[first_of_each(VERDICT_ROWS.keys(pairs.take(pa.array(rows))))]

    async def _ask(self, pairs: pa.Table) -> None:
        buffer = _Buffer(self, pairs.select(VERDICT_ROWS.key))
        filling = asyncio.create_task(buffer.fill(self._source.stream(pairs)))
        try:
            while not filling.done():
                await asyncio.wait({filling}, timeout=FLUSH_SECONDS)
                if buffer:
                    await asyncio.to_thread(self._ledger.add, self.judge_id, *buffer.release())
            await filling
        finally:
            filling.cancel()
            await asyncio.wait({filling})
            if buffer:
                self._ledger.add(self.judge_id, *buffer.release())


@dataclass(frozen=True)
class _Live:
    judge: LedgerJudge

    @property
    def n_answered(self) -> int:
        return self.judge.hits + self.judge.n_requested

    @property
    def note(self) -> str:
        return self.judge.source.note


class _Buffer:
    """Replies that are not yet written to the ledger."""

    def __init__(self, owner: LedgerJudge, hashes: pa.Table) -> None:
        self._owner, self._hashes = owner, hashes
        self._waiting: list[ReplyBatch] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def fill(self, replies: AsyncIterator[ReplyBatch]) -> None:
        async for batch in replies:
            self._waiting.append(batch)
            self._owner.n_requested += len(batch.rows)

    def release(self) -> tuple[pa.Table, pa.Table]:
        """Remove and return the hashes and replies."""
        waiting, self._waiting = self._waiting, []
        rows = pa.array(np.concatenate([batch.rows for batch in waiting]))
        return self._hashes.take(rows), pa.concat_tables([batch.replies for batch in waiting])
