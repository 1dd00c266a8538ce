"""A judge with a ledger: verdicts that were kept are taken from it, the rest is paid for once and kept as it comes."""

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
from darklode.pipeline.judge.ledger import VERDICTS, Ledger
from darklode.pipeline.judge.port import Judge, Live, ReplyBatch, StreamingJudge

FLUSH_SECONDS = 0.5
"""A reply waits no longer than this until it is kept: with the calls under way, what a kill may cost."""


class LedgerJudge(Judge):
    """A streaming judge with a ledger.

    A null verdict settles its pair once that was tried `attempts` times; one that names no attempts was never a reply
    (the server refused the pair, say), and settles it at once.

    Args:
        source: who is asked.
        ledger: where replies are looked up first, and kept as they arrive.
        attempts: how often an unreadable reply is worth asking for, over all runs.
    """

    def __init__(self, source: StreamingJudge, ledger: Ledger, attempts: int = 1) -> None:
        self._source, self._ledger, self._attempts = source, ledger, attempts
        self._entries: Entries | None = None
        self.hits = 0
        """Pairs that cost no call: the ledger had them, of an earlier version maybe, or they came twice in a batch."""
        self.n_requested = 0
        """Pairs that the source replied to."""

    @property
    def judge_id(self) -> str:
        """The source's."""
        return self._source.judge_id

    @property
    def facts(self) -> dict[str, int]:
        """`hits` and `n_requested`, for the stage's record."""
        return {"hits": self.hits, "asked": self.n_requested}

    @property
    def live(self) -> Live:
        """Pairs from the ledger and those answered now; the note is the source's, where it has one."""
        return _Live(self)

    @property
    def source(self) -> StreamingJudge:
        """Who is asked."""
        return self._source

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Reply to each pair (see the port) as the ledger has it at the end, whoever was asked first.

        Raises:
            ArtifactError: a reply cannot be kept.
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
        """Rows to ask for, each pair once."""
        tried = pc.greater_equal(pc.fill_null(entries_found.values["attempts"], self._attempts), self._attempts)
        settled = pc.or_(pc.is_valid(entries_found.values["relevant"]), tried).to_numpy()
        rows = np.delete(np.arange(pairs.num_rows), entries_found.rows[settled])
        return rows[first_of_each(VERDICTS.keys(pairs.take(pa.array(rows))))]

    async def _ask(self, pairs: pa.Table) -> None:
        buffer = _Buffer(self, pairs.select(VERDICTS.key))
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
    """Replies on their way into the ledger."""

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
        """The hashes and the replies that wait."""
        waiting, self._waiting = self._waiting, []
        rows = pa.array(np.concatenate([batch.rows for batch in waiting]))
        return self._hashes.take(rows), pa.concat_tables([batch.replies for batch in waiting])
