"""Adaptive concurrency limit of a server: grows while throughput grows, shrinks when calls are rejected (AIMD)."""

from __future__ import annotations

import random
import time

INITIAL_LIMIT = 16
MIN_WINDOW_SECONDS = 0.1
"""Minimum seconds over which throughput is measured."""
MIN_GAIN = 1.05
"""Minimum ratio of throughput after a step up for another step."""
GROWTH, SHRINKAGE = 1.1, 0.7
MAX_REJECTED_SHARE = 0.2
"""Tolerated share of rejected calls; a few rejections are unrelated to our load."""
WINDOWS_BEFORE_RETRY = 16
"""Windows without growth after which a step up is tried again: the server may have changed."""


def jittered_delay(tries: int, first: float, longest: float) -> float:
    """Exponential backoff with full jitter: uniform between 0 and a bound that doubles from `first` to `longest`."""
    return random.uniform(0, min(longest, first * 2.0 ** min(tries, 10)))  # noqa: S311


class ConcurrencyLimit:
    """An adaptive concurrency limit of one server.

    It doubles while that increases throughput, then grows by 10 %. Rejected calls reduce it by 30 %, at most once in
    the time that a call takes.

    Args:
        max_concurrency: upper bound of the limit.
        first: initial limit.
    """

    def __init__(self, max_concurrency: int, first: int = INITIAL_LIMIT) -> None:
        self._max_concurrency = max_concurrency
        self._limit = float(min(first, max_concurrency))
        self._doubling = True
        self._best_throughput = 0.0
        self._windows_without_growth = 0
        self.in_flight = 0
        self._full = False
        self._start_window()

    @property
    def limit(self) -> int:
        """Current limit of concurrent calls."""
        return int(self._limit)

    @property
    def room(self) -> int:
        """Free slots."""
        return max(0, self.limit - self.in_flight)

    def enter(self) -> float:
        """Take a slot; returns the time, for `release`."""
        self.in_flight += 1
        self._full = self._full or self.in_flight >= self.limit
        return time.monotonic()

    def release(self, entered: float, *, answered: bool, overloaded: bool) -> None:
        """Release a slot.

        Args:
            entered: time returned by `enter`.
            answered: whether the server answered.
            overloaded: whether the server showed that it is overloaded.
        """
        self.in_flight -= 1
        if entered >= self._began or answered:  # older calls belong to an earlier limit
            self._answered += answered
            self._overloaded += overloaded
            self._adapt()

    def restart(self) -> None:
        """Start again with one call, after the server was down."""
        self._limit, self._doubling, self._best_throughput = 1.0, True, 0.0
        self._start_window()

    def _start_window(self) -> None:
        self._began, self._answered, self._overloaded, self._full = time.monotonic(), 0, 0, False

    def _adapt(self) -> None:
        n_rejected = self._overloaded
        if n_rejected > max(2.0, MAX_REJECTED_SHARE * self.limit) and n_rejected > MAX_REJECTED_SHARE * (
            n_rejected + self._answered
        ):
            self._limit = max(1.0, self._limit * SHRINKAGE)
            self._doubling, self._best_throughput, self._windows_without_growth = False, 0.0, 0
            self._start_window()
        elif self._answered >= self.limit and time.monotonic() - self._began >= MIN_WINDOW_SECONDS:
            self._grow(self._answered / (time.monotonic() - self._began))
            self._start_window()

    def _grow(self, rate: float) -> None:
        """Raise the limit if all slots were used and the last step up increased throughput."""
        if not self._full or self.limit == self._max_concurrency:
            return
        if rate > self._best_throughput * MIN_GAIN or self._windows_without_growth >= WINDOWS_BEFORE_RETRY:
            self._best_throughput, self._windows_without_growth = rate, 0
            grown = self._limit * 2 if self._doubling else self._limit * GROWTH + 1
            self._limit = min(float(self._max_concurrency), grown)
        else:
            self._doubling = False
            self._windows_without_growth += 1
