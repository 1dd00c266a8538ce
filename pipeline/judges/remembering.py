"""A judge that never asks twice: what the ledger holds is taken from it, the rest is asked and kept at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.encoders.keys import KeyIndex
from pipeline.judges.asker import Answered, Asker
from pipeline.judges.known import Known
from pipeline.judges.ledger import Ledger
from pipeline.judges.port import Live
from pipeline.judges.verdict_parts import pair_keys

FLUSH_SECONDS = 0.5
"""A reply waits no longer than this until it is kept: with the calls under way, what a kill may cost."""
COMPACT_PARTS = 256
"""As many parts make the judge merge them before it goes on."""


class Remembered:
    """An asker with a ledger, as a judge.

    A null verdict counts as known, once the pair was tried `attempts` times; one that names no attempts was never
    a reply (the server refused the pair, say), and counts at once.

    Args:
        asker: who is asked.
        ledger: where replies are looked up first, and kept as they arrive.
        attempts: how often an unreadable reply is worth asking for, over all runs.
    """

    def __init__(self, asker: Asker, ledger: Ledger, attempts: int = 1) -> None:
        self._asker, self._ledger, self._attempts = asker, ledger, attempts
        self._known: Known | None = None
        self.hits = 0
        """Pairs that cost no call: the ledger had them, or they came twice in a batch."""
        self.asked = 0
        """Pairs that the asker replied to."""

    @property
    def judge_id(self) -> str:
        """The asker's."""
        return self._asker.judge_id

    @property
    def facts(self) -> dict[str, int]:
        """`hits` and `asked`, for the stage's record."""
        return {"hits": self.hits, "asked": self.asked}

    @property
    def live(self) -> Live:
        """Pairs from the ledger and those answered now; the note is the asker's, where it has one."""
        return _Live(self)

    @property
    def asker(self) -> Asker:
        """Who is asked."""
        return self._asker

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Reply to each pair (see the port) as the ledger has it at the end, whoever was asked first.

        Raises:
            ArtifactError: a reply cannot be kept.
            ValueError: the asker left out a pair.
        """
        known = self._open()
        held = known.lookup(pairs)
        missing = self._missing(pairs, held)
        self.hits += pairs.num_rows - len(missing)
        if len(missing):
            await self._ask(pairs.take(pa.array(missing)))
            known.refresh()
            held = known.lookup(pairs)
        if len(held.rows) < pairs.num_rows:
            lost = pairs.num_rows - len(held.rows)
            raise ValueError(f"{self.judge_id}: {lost} of {pairs.num_rows} pairs have no reply in the ledger")
        return held.replies

    def _open(self) -> Known:
        if self._ledger.small_parts(self.judge_id) >= COMPACT_PARTS:
            self._ledger.compact(self.judge_id)
        if self._known is None:
            self._known = self._ledger.open(self.judge_id)
        self._known.refresh()
        return self._known

    def _missing(self, pairs: pa.Table, held: Answered) -> NDArray[np.int64]:
        """Rows to ask for, each pair once."""
        tried = pc.greater_equal(pc.fill_null(held.replies["attempts"], self._attempts), self._attempts)
        settled = pc.or_(pc.is_valid(held.replies["relevant"]), tried).to_numpy()
        rows = np.delete(np.arange(pairs.num_rows), held.rows[settled])
        return np.delete(rows, KeyIndex(pair_keys(pairs.take(pa.array(rows)))).repeats())

    async def _ask(self, pairs: pa.Table) -> None:
        held = _Held(self, pairs.select(["query_hash", "chunk_hash"]))
        taking = asyncio.create_task(held.take(self._asker.ask(pairs)))
        try:
            while not taking.done():
                await asyncio.wait({taking}, timeout=FLUSH_SECONDS)
                if held:
                    await asyncio.to_thread(self._ledger.append, self.judge_id, *held.release())
            await taking
        finally:
            taking.cancel()
            await asyncio.wait({taking})
            if held:
                self._ledger.append(self.judge_id, *held.release())


@dataclass(frozen=True)
class _Live:
    of: Remembered

    @property
    def answered(self) -> int:
        return self.of.hits + self.of.asked

    @property
    def note(self) -> str:
        return str(getattr(self.of.asker, "note", ""))


class _Held:
    """Replies on their way into the ledger."""

    def __init__(self, owner: Remembered, hashes: pa.Table) -> None:
        self._owner, self._hashes = owner, hashes
        self._waiting: list[Answered] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def take(self, replies: AsyncIterator[Answered]) -> None:
        async for answered in replies:
            self._waiting.append(answered)
            self._owner.asked += len(answered.rows)

    def release(self) -> tuple[pa.Table, pa.Table]:
        """The hashes and the replies that wait."""
        waiting, self._waiting = self._waiting, []
        rows = pa.array(np.concatenate([answered.rows for answered in waiting]))
        return self._hashes.take(rows), pa.concat_tables([answered.replies for answered in waiting])
