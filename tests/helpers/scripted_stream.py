"""A streaming judge that says what the test tells it to, in scrambled order, and pairs with real hashes to ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.judge.port import PAIRS, REPLIES, ReplyBatch, StreamingJudge
from helpers.hash_encoder import content_hash
from helpers.scripted_judge import NOT_RELEVANT, RELEVANT, Said


def pairs(*ids: tuple[int, int], tenant: str = "t") -> pa.Table:
    """Rows of `PAIRS` from (query, chunk) numbers; equal numbers have equal hashes."""
    words = [(f"query {query}", f"chunk {chunk}") for query, chunk in ids]
    columns = {
        "tenant": [tenant] * len(ids),
        "query_id": [f"q{query}" for query, _ in ids],
        "query": [query for query, _ in words],
        "chunk_id": [f"c{chunk}" for _, chunk in ids],
        "title": [None] * len(ids),
        "heading": [None] * len(ids),
        "text": [chunk for _, chunk in words],
        "query_hash": [content_hash(query) for query, _ in words],
        "chunk_hash": [content_hash(chunk) for _, chunk in words],
    }
    return pa.table(columns, schema=PAIRS)


def replies(*said: Said) -> pa.Table:
    """Rows of `REPLIES`; what is left out is null."""
    return pa.Table.from_pylist([dict.fromkeys(REPLIES.names) | dict(one) for one in said], schema=REPLIES)


def by_parity(pair: dict[str, Any]) -> Said:
    """Relevant where the numbers of query and chunk add up to an even one."""
    number = int(pair["query_id"][1:]) + int(pair["chunk_id"][1:])
    return (NOT_RELEVANT if number % 2 else RELEVANT) | {"raw_reply": f"{number}", "prompt_tokens": 10, "attempts": 1}


class ScriptedStream(StreamingJudge):
    """Replies by a script, in chunks and in scrambled order, and remembers what it was asked.

    Args:
        script: what to say to a row of `PAIRS`.
        at_once: replies handed over together.
        seconds: waited before each of them.
        fail_after: raise `ConnectionError` once so many were handed over.
    """

    judge_id: str = ""

    def __init__(
        self,
        script: Callable[[dict[str, Any]], Said] = by_parity,
        at_once: int = 3,
        seconds: float = 0,
        fail_after: int | None = None,
        judge_id: str = "scripted/1: é",
    ) -> None:
        self.judge_id = judge_id
        self.asked: list[tuple[str, str]] = []
        self.closed = False
        self._script, self._at_once, self._seconds, self._fail_after = script, at_once, seconds, fail_after

    async def stream(self, pairs: pa.Table) -> AsyncIterator[ReplyBatch]:
        """See the port."""
        self.asked += [(pair["query_id"], pair["chunk_id"]) for pair in pairs.to_pylist()]
        order = np.random.default_rng(len(self.asked)).permutation(pairs.num_rows)
        given = 0
        try:
            for start in range(0, len(order), self._at_once):
                await asyncio.sleep(self._seconds)
                if self._fail_after is not None and given >= self._fail_after:
                    raise ConnectionError("the scripted source fails here")
                yield self._answer(pairs, order[start : start + self._at_once])
                given += self._at_once
        finally:
            self.closed = True

    def _answer(self, pairs: pa.Table, rows: Sequence[int]) -> ReplyBatch:
        said = [self._script(pair) for pair in pairs.take(pa.array(rows)).to_pylist()]
        return ReplyBatch(np.asarray(rows, dtype=np.int64), replies(*said))
