"""What calls cost: live counters, what all runs have spent, and limits that hold over runs."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import LimitReached
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.base.remote.endpoint import Endpoint

_WINDOW = 10.0


class Usage(NamedTuple):
    """Tokens of calls."""

    prompt: int
    completion: int


NOTHING = Usage(0, 0)

_MOST_TOKENS = 2**31 - 1


def parse_count(value: object) -> int | None:
    """Tokens as a server counts them; None for what cannot be the tokens of a call."""
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


def tokens_used(reply: Mapping[str, Any], estimate: Usage) -> Usage:
    """Tokens as the server counts them, or else as estimated."""
    usage = reply.get("usage")
    if not isinstance(usage, dict):
        return estimate
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    prompt, completion, total = (parse_count(usage.get(name)) for name in names)
    if prompt is not None and completion is not None:
        return Usage(prompt, completion)
    # Embeddings have no completion: all their tokens are the prompt's.
    return Usage(total, 0) if not estimate.completion and total else estimate


@dataclass
class Counters:
    """Live numbers, all from the beginning on; read them from any thread.

    Attributes:
        answered: jobs that are done, such as pairs with a verdict, null ones included.
        nulls: those without a result.
        truncated: those whose text was cut.
        in_flight: calls under way now.
        limit: most of them that the servers seem to bear now.
        calls: sent, in whatever way they ended.
        retries: calls that failed on the way and were sent again.
        asked_again: replies that could not be read and were asked for again.
        prompt_tokens, cached_tokens, completion_tokens: as the server counts them.
        cost: money spent, in the unit of the prices.
        paused: what is waited for, while a server is down.
    """

    answered: int = 0
    nulls: int = 0
    truncated: int = 0
    in_flight: int = 0
    limit: int = 0
    calls: int = 0
    retries: int = 0
    asked_again: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    paused: str = ""
    _marks: list[tuple[float, int]] = field(default_factory=list, repr=False)

    def answer(self, *, null: bool, truncated: bool = False) -> None:
        """Count a job that is done."""
        self.answered += 1
        self.nulls += null
        self.truncated += truncated
        now = time.monotonic()
        if not self._marks or now - self._marks[-1][0] > _WINDOW / 20:
            self._marks = [mark for mark in self._marks if now - mark[0] < _WINDOW] + [(now, self.answered)]

    def __str__(self) -> str:
        """For a progress bar."""
        if self.paused:
            return self.paused
        spent = f"{self.cost:.2f} spent" if self.cost else f"{self.prompt_tokens + self.completion_tokens:,} tokens"
        return f"{self.pairs_per_second:,.0f}/s, {self.in_flight} in flight, {self.nulls:,} null, {spent}"

    @property
    def pairs_per_second(self) -> float:
        """Over the last ten seconds; 0 before there is anything to count."""
        since = [mark for mark in self._marks if time.monotonic() - mark[0] < _WINDOW]
        if not since or self.answered == since[0][1]:
            return 0.0
        return (self.answered - since[0][1]) / max(time.monotonic() - since[0][0], 1e-9)


SPENDING = RowKind(
    "spending",
    "account",
    ("entry",),
    pa.schema(
        [
            pa.field("prompt_tokens", pa.int64(), nullable=False),
            pa.field("completion_tokens", pa.int64(), nullable=False),
            pa.field("cost", pa.float64(), nullable=False),
        ]
    ),
)
"""What was spent, by account (see `Endpoint.account`); an entry has a random name, and all of them add up."""


class SpendingBook:
    """What all runs have spent at one account, kept beside what they got for it.

    A run adds what it spent every few seconds, so that of a killed one no more than that is forgotten.

    Args:
        root: a folder or an s3:// prefix; null: the user's cache folder.
        account: whose.
    """

    def __init__(self, root: str | None, account: str) -> None:
        self._store, self.account = KeyedStore(root, SPENDING), account

    @property
    def place(self) -> str:
        """Where it is kept, for messages."""
        return self._store.parts.store.path(self._store.parts.folder(self.account))

    def add(self, usage: Usage, cost: float) -> None:
        """Enter what was spent.

        Raises:
            ArtifactError: it cannot be written.
        """
        row = {"entry": uuid.uuid4().hex, "prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
        columns = [*SPENDING.key, *SPENDING.values.names]
        schema = pa.schema([SPENDING.schema.field(name) for name in columns])
        self._store.append(self.account, pa.Table.from_pylist([row | {"cost": cost}], schema))

    def total(self) -> tuple[Usage, float]:
        """Tokens and money of all entries.

        Raises:
            ArtifactError: they cannot be read.
        """
        self._store.merge_small_parts(self.account)
        rows = self._store.open(self.account).rows(SPENDING.values.names)
        prompt, completion, cost = (pc.sum(rows[name]).as_py() or 0 for name in SPENDING.values.names)
        return Usage(prompt, completion), float(cost)


class Budget:
    """Calls are reserved at a high estimate before they are sent, and settled at what the server says.

    A call whose answer was lost counts at its estimate: it may have been billed. What other runs spent at the same
    account counts, too, as far as it is in the book.

    Args:
        endpoint: its prices and limits.
        counters: what this process has spent.
        book: of the account; None: nothing is kept.
    """

    def __init__(self, endpoint: Endpoint, counters: Counters, book: SpendingBook | None) -> None:
        self._endpoint, self._counters = endpoint, counters
        priced = bool(endpoint.prompt_price or endpoint.completion_price)
        self._book = book if priced or endpoint.token_limit is not None else None  # without either nothing is limited
        self._reserved, self._entered = NOTHING, NOTHING
        self._other_usage, self._others_cost = NOTHING, 0.0
        self._lock = threading.Lock()

    def sync_book(self) -> None:
        """Enter into the book what was spent since the last time, and see what others have entered."""
        with self._lock:
            if self._book is None:
                return
            spent = self._usage
            new = Usage(spent.prompt - self._entered.prompt, spent.completion - self._entered.completion)
            if any(new):
                self._book.add(new, self.cost(new))
                self._entered = spent
            if self._endpoint.has_limit:
                every, cost = self._book.total()
                self._other_usage = Usage(every.prompt - spent.prompt, every.completion - spent.completion)
                self._others_cost = max(0.0, cost - self.cost(spent))

    def must_wait(self, call: Usage) -> bool:
        """Whether the call must wait: what is under way might use up the rest, but may not."""
        return bool(self._reserved.prompt) and self._exceeded_limit(call) is not None

    def reserve(self, call: Usage) -> None:
        """Set tokens aside for a call.

        Raises:
            LimitReached: with them a limit could be exceeded.
        """
        if over := self._exceeded_limit(call):
            raise LimitReached(f"{over}. What was answered is kept; raise the limit to go on from there")
        self._reserved = _sum(self._reserved, call)

    def settle(self, reserved: Usage, used: Usage) -> None:
        """Book what a call used in place of what was reserved for it."""
        self._reserved = Usage(self._reserved.prompt - reserved.prompt, self._reserved.completion - reserved.completion)
        self._counters.prompt_tokens += used.prompt
        self._counters.completion_tokens += used.completion
        self._counters.cost = self.cost(self._usage)

    @property
    def _usage(self) -> Usage:
        return Usage(self._counters.prompt_tokens, self._counters.completion_tokens)

    def _exceeded_limit(self, call: Usage) -> str | None:
        """The limit that the call could exceed, in words."""
        if not self._endpoint.has_limit:
            return None
        limits, planned = self._endpoint, _sum(_sum(self._usage, self._reserved), call)
        tokens, cost = sum(_sum(planned, self._other_usage)), self.cost(planned) + self._others_cost
        if _exceeds(limits.token_limit, tokens):
            return self._limit_message(f"token_limit {limits.token_limit:,}")
        if _exceeds(limits.spending_limit, cost):
            return self._limit_message(f"spending_limit {limits.spending_limit:g}")
        if limits.portion and _exceeds(limits.portion.tokens, sum(planned)):
            return self._limit_message(f"token_limit {limits.token_limit:,} (this worker's portion of it)")
        if limits.portion and _exceeds(limits.portion.money, self.cost(planned)):
            return self._limit_message(f"spending_limit {limits.spending_limit:g} (this worker's portion of it)")
        return None

    def _limit_message(self, limit: str) -> str:
        message = f"{self._endpoint.section}.{limit} would be exceeded: {sum(self._usage):,} tokens and "
        message += f"{self._counters.cost:.4f} spent so far"
        if any(self._other_usage) and self._book:
            message += (
                f", and {sum(self._other_usage):,} tokens and {self._others_cost:.4f} by other runs, kept in "
                f"{self._book.place} (delete that folder to count anew)"
            )
        return message

    @property
    def account(self) -> str:
        """Where it is kept what is spent; empty: nowhere."""
        return self._book.account if self._book else ""

    def cost(self, usage: Usage) -> float:
        """Money that tokens cost, by the endpoint's prices."""
        prices = self._endpoint
        return (usage.prompt * prices.prompt_price + usage.completion * prices.completion_price) / 1e6


def _sum(first: Usage, other: Usage) -> Usage:
    return Usage(first.prompt + other.prompt, first.completion + other.completion)


def _exceeds(limit: float | None, used: float) -> bool:
    return limit is not None and used > limit
