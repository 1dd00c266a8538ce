"""A judge that never asks twice: what the ledger holds is taken from it, the rest is asked and kept at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.encoders.keys import KeyIndex
from pipeline.judges.asker import Answered, Asker
from pipeline.judges.known import Known
from pipeline.judges.ledger import Ledger
from pipeline.judges.verdict_parts import pair_keys

FLUSH_SECONDS = 0.5
"""A reply waits no longer than this until it is kept: with the calls under way, what a kill may cost."""
FLUSH_ROWS = 1 << 13
COMPACT_PARTS = 256
"""As many parts make the judge merge them before it goes on."""


class Remembered:
    """An asker with a ledger, as a judge.

    A null verdict counts as known, once the pair was tried `attempts` times.

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
        """Pairs that were put to the asker."""

    @property
    def judge_id(self) -> str:
        """The asker's."""
        return self._asker.judge_id

    @property
    def damaged(self) -> list[str]:
        """Parts of the ledger that were skipped because they cannot be trusted, each with the reason."""
        return self._known.damaged if self._known else []

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
        tried = pc.greater_equal(pc.fill_null(held.replies["attempts"], 1), self._attempts)
        settled = pc.or_(pc.is_valid(held.replies["relevant"]), tried).to_numpy()
        rows = np.delete(np.arange(pairs.num_rows), held.rows[settled])
        return np.delete(rows, KeyIndex(pair_keys(pairs.take(pa.array(rows)))).repeats())

    async def _ask(self, pairs: pa.Table) -> None:
        keeper = _Keeper(self._ledger, self.judge_id, pairs)
        replies = self._asker.ask(pairs)
        coming = asyncio.create_task(_next(replies))
        try:
            while True:
                await asyncio.wait({coming}, timeout=keeper.seconds_left)
                if coming.done():
                    if (answered := coming.result()) is None:
                        return
                    keeper.hold(answered)
                    coming = asyncio.create_task(_next(replies))
                if keeper.seconds_left == 0:
                    await asyncio.to_thread(keeper.flush)
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError, Exception):
                if last := await coming:
                    keeper.hold(last)
            if isinstance(replies, AsyncGenerator):
                await replies.aclose()
            self.asked += keeper.replies
            keeper.flush()


async def _next(replies: AsyncIterator[Answered]) -> Answered | None:
    return await anext(replies, None)


class _Keeper:
    """Replies on their way into the ledger."""

    def __init__(self, ledger: Ledger, judge_id: str, pairs: pa.Table) -> None:
        self._ledger, self._judge_id = ledger, judge_id
        self._hashes = pairs.select(["query_hash", "chunk_hash"])
        self._held: list[Answered] = []
        self._rows = 0
        self._since = 0.0
        self.replies = 0

    def hold(self, answered: Answered) -> None:
        self._since = self._since if self._held else time.monotonic()
        self._held.append(answered)
        self._rows += len(answered.rows)
        self.replies += len(answered.rows)

    @property
    def seconds_left(self) -> float | None:
        """Until a flush is due; None where nothing is held."""
        if not self._held:
            return None
        return 0.0 if self._rows >= FLUSH_ROWS else max(0.0, self._since + FLUSH_SECONDS - time.monotonic())

    def flush(self) -> None:
        """Write what is held."""
        held, self._held, self._rows = self._held, [], 0
        if held:
            rows = pa.array(np.concatenate([answered.rows for answered in held]))
            replies = pa.concat_tables([answered.replies for answered in held])
            self._ledger.append(self._judge_id, self._hashes.take(rows), replies)
