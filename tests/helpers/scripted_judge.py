"""A judge that says what the test tells it to: readable and unreadable replies, failures, slowness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from darklode.pipeline.judge.port import REPLIES, Judge, Live

Said = Mapping[str, Any]
"""Columns of `REPLIES` for one pair; what is left out is null."""

Script = Callable[[Mapping[str, Any]], Said]
"""Reads a row of `PAIRS`, gives the reply."""

RELEVANT: Said = {"relevant": True, "probability": 0.9}
NOT_RELEVANT: Said = {"relevant": False, "probability": 0.1}
UNREADABLE: Said = {"raw_reply": "see RFC 2119", "error": "the reply names no label"}


def from_table(said: Mapping[tuple[str, str], Said], otherwise: Said = NOT_RELEVANT) -> Script:
    """A script that looks replies up by (query_id, chunk_id)."""
    return lambda pair: said.get((pair["query_id"], pair["chunk_id"]), otherwise)


class ScriptedJudge(Judge):
    """Replies by a script, and remembers every batch it was asked.

    Args:
        script: what to say to a pair; by default, nothing is relevant.
        judge_id: its name.
        fail_at: raise `ConnectionError` at this batch, counted from 1.
        seconds: how long each batch takes.
    """

    judge_id: str = ""
    facts: Mapping[str, int] = {}
    live: Live | None = None

    def __init__(
        self,
        script: Script = lambda _pair: NOT_RELEVANT,
        judge_id: str = "scripted",
        fail_at: int | None = None,
        seconds: float = 0,
    ) -> None:
        self.judge_id = judge_id
        self.batches: list[pa.Table] = []
        self._script = script
        self._fail_at = fail_at
        self._seconds = seconds

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """See the port."""
        self.batches.append(pairs)
        await asyncio.sleep(self._seconds)
        if len(self.batches) == self._fail_at:
            raise ConnectionError("the scripted judge fails here")
        said = [dict.fromkeys(REPLIES.names) | dict(self._script(pair)) for pair in pairs.to_pylist()]
        return pa.Table.from_pylist(said, schema=REPLIES)

    @property
    def asked(self) -> list[tuple[str, str, str]]:
        """Every pair it was asked, as (tenant, query_id, chunk_id), in order."""
        ids = [batch.select(["tenant", "query_id", "chunk_id"]).to_pylist() for batch in self.batches]
        return [(pair["tenant"], pair["query_id"], pair["chunk_id"]) for batch in ids for pair in batch]
