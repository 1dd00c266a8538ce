"""Cost of calls: live counters, spending of all runs, and limits across runs."""

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

_THROUGHPUT_SECONDS = 10.0  # seconds over which throughput is averaged


class Usage(NamedTuple):
    """Tokens of calls."""

    prompt: int
    completion: int


NO_USAGE = Usage(0, 0)

_MAX_TOKENS = 2**31 - 1


def parse_count(value: object) -> int | None:
    """A token count in a reply; None if it is not a valid count."""
    return value if type(value) is int and 0 <= value <= _MAX_TOKENS else None


def tokens_used(reply: Mapping[str, Any], estimate: Usage) -> Usage:
    """Tokens reported by the server, else the estimate."""
    usage = reply.get("usage")
    if not isinstance(usage, dict):
        return estimate
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    prompt, completion, total = (parse_count(usage.get(name)) for name in names)
    if prompt is not None and completion is not None:
        return Usage(prompt, completion)
    # Embeddings have no completion tokens.
    return Usage(total, 0) if not estimate.completion and total else estimate


@dataclass
class Counters:
    """Counters since the start; may be read from any thread.

    Attributes:
        answered: finished jobs, such as pairs with a verdict, including null verdicts.
        nulls: jobs without a result.
        truncated: jobs whose text was truncated.
        in_flight: current number of concurrent calls.
        limit: current concurrency limit of all servers together.
        calls: calls sent, whatever their outcome.
        retries: calls sent again after a transient failure.
        asked_again: calls sent again because the reply was unreadable.
        prompt_tokens, cached_tokens, completion_tokens: as reported by the server.
        cost: money spent, in the currency of the prices.
        paused: status text while a server is down.
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
        """Count a finished job."""
        self.answered += 1
        self.nulls += null
        self.truncated += truncated
        now = time.monotonic()
        if not self._marks or now - self._marks[-1][0] > _THROUGHPUT_SECONDS / 20:
            self._marks = [mark for mark in self._marks if now - mark[0] < _THROUGHPUT_SECONDS] + [(now, self.answered)]

    def __str__(self) -> str:
        """Text for a progress bar."""
        if self.paused:
            return self.paused
        spent = f"{self.cost:.2f} spent" if self.cost else f"{self.prompt_tokens + self.completion_tokens:,} tokens"
        return f"{self.pairs_per_second:,.0f}/s, {self.in_flight} in flight, {self.nulls:,} null, {spent}"

    @property
    def pairs_per_second(self) -> float:
        """Finished jobs per second over the last ten seconds; 0 at the start."""
        recent = [mark for mark in self._marks if time.monotonic() - mark[0] < _THROUGHPUT_SECONDS]
        if not recent or self.answered == recent[0][1]:
            return 0.0
        return (self.answered - recent[0][1]) / max(time.monotonic() - recent[0][0], 1e-9)


SPENDING_ROWS = RowKind(
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
"""Spending by account (see `Endpoint.account`); entries have random names and are summed."""


class SpendingLedger:
    """Spending of all runs at an account, stored beside the results in the cache.

    A run records its spending every few seconds, so that a kill loses no more than that.

    Args:
        root: a folder or an s3:// prefix; null: the user's cache folder.
        account: the account.
    """

    def __init__(self, root: str | None, account: str) -> None:
        self._store, self.account = KeyedStore(root, SPENDING_ROWS), account

    @property
    def path(self) -> str:
        """Path of the ledger, for messages."""
        return self._store.parts.store.path(self._store.parts.folder(self.account))

    def add(self, usage: Usage, cost: float) -> None:
        """Record spending.

        Raises:
            ArtifactError: the ledger cannot be written.
        """
        row = {"entry": uuid.uuid4().hex, "prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
        columns = [*SPENDING_ROWS.key, *SPENDING_ROWS.values.names]
        schema = pa.schema([SPENDING_ROWS.schema.field(name) for name in columns])
        self._store.append(self.account, pa.Table.from_pylist([row | {"cost": cost}], schema))

    def total(self) -> tuple[Usage, float]:
        """Sum of tokens and money over all entries.

        Raises:
            ArtifactError: the ledger cannot be read.
        """
        self._store.merge_small_parts(self.account)
        rows = self._store.open(self.account).rows(SPENDING_ROWS.values.names)
        prompt, completion, cost = (pc.sum(rows[name]).as_py() or 0 for name in SPENDING_ROWS.values.names)
        return Usage(prompt, completion), float(cost)


class Budget:
    """Reserves each call at a high estimate before it is sent, and settles it with the tokens reported by the server.

    A call whose reply was lost counts with its estimate, because it may have been billed. Spending of other runs at the
    same account counts as far as it is in the ledger.

    Args:
        endpoint: prices and limits.
        counters: counters of this process.
        ledger: ledger of the account; None: spending is not recorded.
    """

    def __init__(self, endpoint: Endpoint, counters: Counters, ledger: SpendingLedger | None) -> None:
        self._endpoint, self._counters = endpoint, counters
        has_price = bool(endpoint.prompt_price or endpoint.completion_price)
        # Without prices and token limit, there is no limit.
        self._ledger = ledger if has_price or endpoint.token_limit is not None else None
        self._reserved, self._recorded = NO_USAGE, NO_USAGE
        self._other_usage, self._other_cost = NO_USAGE, 0.0
        self._lock = threading.Lock()

    def sync_ledger(self) -> None:
        """Record spending since the last call in the ledger, and read that of other runs."""
        with self._lock:
            if self._ledger is None:
                return
            spent = self._usage
            new = Usage(spent.prompt - self._recorded.prompt, spent.completion - self._recorded.completion)
            if any(new):
                self._ledger.add(new, self.cost(new))
                self._recorded = spent
            if self._endpoint.has_limit:
                total, cost = self._ledger.total()
                self._other_usage = Usage(total.prompt - spent.prompt, total.completion - spent.completion)
                self._other_cost = max(0.0, cost - self.cost(spent))

    def must_wait(self, call: Usage) -> bool:
        """Whether the call must wait, because calls in flight may, or may not, use up the budget."""
        return bool(self._reserved.prompt) and self._exceeded_limit(call) is not None

    def reserve(self, call: Usage) -> None:
        """Reserve tokens for a call.

        Raises:
            LimitReached: a limit could be exceeded.
        """
        if message := self._exceeded_limit(call):
            raise LimitReached(f"{message}. Results so far are kept; raise the limit and run again to continue")
        self._reserved = _add_usage(self._reserved, call)

    def settle(self, reserved: Usage, used: Usage) -> None:
        """Replace a call's reservation by its actual usage."""
        self._reserved = Usage(self._reserved.prompt - reserved.prompt, self._reserved.completion - reserved.completion)
        self._counters.prompt_tokens += used.prompt
        self._counters.completion_tokens += used.completion
        self._counters.cost = self.cost(self._usage)

    @property
    def _usage(self) -> Usage:
        return Usage(self._counters.prompt_tokens, self._counters.completion_tokens)

    def _exceeded_limit(self, call: Usage) -> str | None:
        """The message if the call could exceed a limit, else None."""
        if not self._endpoint.has_limit:
            return None
        limits, planned = self._endpoint, _add_usage(_add_usage(self._usage, self._reserved), call)
        tokens, cost = sum(_add_usage(planned, self._other_usage)), self.cost(planned) + self._other_cost
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
        if any(self._other_usage) and self._ledger:
            message += (
                f", and {sum(self._other_usage):,} tokens and {self._other_cost:.4f} by other runs, recorded in "
                f"{self._ledger.path} (delete that folder to reset the count)"
            )
        return message

    @property
    def account(self) -> str:
        """Account of the ledger; empty if spending is not recorded."""
        return self._ledger.account if self._ledger else ""

    def cost(self, usage: Usage) -> float:
        """Cost of tokens at the endpoint's prices."""
        prices = self._endpoint
        return (usage.prompt * prices.prompt_price + usage.completion * prices.completion_price) / 1e6


def _add_usage(first: Usage, other: Usage) -> Usage:
    return Usage(first.prompt + other.prompt, first.completion + other.completion)


def _exceeds(limit: float | None, used: float) -> bool:
    return limit is not None and used > limit
