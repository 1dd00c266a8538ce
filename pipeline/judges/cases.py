"""The pairs of one batch, each taken from its verdictless state to its verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.encoders.batching import estimate_tokens
from pipeline.errors import DarklodeError
from pipeline.judges.asking import Asking
from pipeline.judges.caller import Caller
from pipeline.judges.calls import Refused
from pipeline.judges.prompt import Asked
from pipeline.judges.reading import Reading, read

REFUSED_IN_A_ROW = 100
"""So many pairs refused without an answer between them, and it is not the pairs that are at fault."""


@dataclass
class Case:
    """One pair on its way: what of it is shown to the model, and whether that is less than all."""

    pair: Asked
    name: str
    home: int
    user: str
    truncated: bool


class Cases:
    """Judges pairs of a table by their row.

    Args:
        pairs: rows of `PAIRS`.
        asking: what to ask.
        caller: whom.
    """

    def __init__(self, pairs: pa.Table, asking: Asking, caller: Caller) -> None:
        self._asking, self._caller, self._settings = asking, caller, asking.settings
        self._shown = [_whole(pairs[name]) for name in ("query", "title", "heading", "text")]
        self._ids = [_whole(pairs[name]) for name in ("query_id", "chunk_id")]
        self._refusals = 0

    async def judge(self, row: int, home: int) -> Reading:
        """A pair's verdict, after as many replies as it takes and the settings allow.

        Raises:
            DarklodeError, Stopped: see `Caller.complete`; or pair after pair is refused.
        """
        case = self._case(row, home)
        body, earlier = self._asking.body(case.user), None
        for attempt in range(self._settings.attempts):
            self._caller.counters.asked_again += attempt > 0
            reading = await self._reply(case, body)
            if earlier:
                reading.add_usage(earlier)
            earlier = reading
            if reading.readable or reading.refused:
                break
            body = self._asking.body_again(case.user, reading.said.get("raw_reply"))
        reading.said["truncated"] = case.truncated
        return reading

    def _case(self, row: int, home: int) -> Case:
        pair = Asked(*(column[row].as_py() for column in self._shown))
        user, cut = self._asking.shown(pair, self._settings.max_chunk_tokens)
        return Case(pair, " and ".join(column[row].as_py() for column in self._ids), home, user, cut)

    async def _reply(self, case: Case, body: bytes) -> Reading:
        """One reply; a pair that the server finds too long is cut to half, once."""
        try:
            return await self._answered(case, body)
        except Refused as error:
            if not error.too_long:
                return self._refused(case, error)
        tokens = min(estimate_tokens(case.pair.chunk), self._settings.max_chunk_tokens)
        case.user, case.truncated = self._asking.shown(case.pair, max(1, tokens // 2))[0], True
        try:
            return await self._answered(case, self._asking.body(case.user))
        except Refused as error:
            return self._refused(case, error)

    async def _answered(self, case: Case, body: bytes) -> Reading:
        completion = await self._caller.complete(case.home, body, self._asking.estimate(case.user), case.name)
        self._refusals = 0
        reading = read(completion, self._asking.form, self._asking.prompt)
        self._caller.counters.cached_tokens += reading.said.get("cached_tokens") or 0
        return reading

    def _refused(self, case: Case, error: Refused) -> Reading:
        self._refusals += 1
        if self._refusals >= REFUSED_IN_A_ROW:
            raise DarklodeError(
                f"the server refused {self._refusals} pairs one after another, the last of them {case.name}: {error}. "
                "What was answered is kept; check the server, then run again"
            )
        return Reading({"attempts": 1, "error": f"the server refused the pair, {error}"}, refused=True)


def by_replica(pairs: pa.Table, replicas: int) -> list[NDArray[np.int64]]:
    """Rows for each server: all of a query's pairs go to one, one query after another."""
    hashes = _whole(pairs["query_hash"]).dictionary_encode()
    codes = hashes.indices.to_numpy().astype(np.int64)
    homes = np.array([int(one[:8], 16) % replicas for one in hashes.dictionary.to_pylist()], np.int64)
    order = np.argsort(codes, kind="stable")
    return [order[homes[codes[order]] == home] for home in range(replicas)]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
