"""How many calls a server bears at once: found by trying, given up when it says that it is too many."""

from __future__ import annotations

import random
import time

FIRST = 16
WINDOW = 0.1
"""Shortest time, in seconds, over which throughput is measured."""
WORTH = 1.05
"""A step up must bring so much more throughput to be followed by another."""
GROWTH, SHRINKAGE = 1.1, 0.7
TOLERATED = 0.2
"""Share of calls that the server may turn away; a few are turned away for reasons that have nothing to do with us."""
PATIENCE = 16
"""Windows without growth until it is tried again: the server may have changed."""


def jittered_delay(tries: int, first: float, longest: float) -> float:
    """Seconds until the next try: any time up to a bound that doubles from `first` to `longest`."""
    return random.uniform(0, min(longest, first * 2.0 ** min(tries, 10)))  # noqa: S311


class ConcurrencyLimit:
    """A limit on calls under way that adapts itself, for one server.

    It doubles while that brings throughput, then creeps; calls turned away take three tenths off, once in the time
    that a call takes.

    Args:
        most: never more than this at once.
        first: to begin with.
    """

    def __init__(self, max_concurrency: int, first: int = FIRST) -> None:
        self._max_concurrency = max_concurrency
        self._limit = float(min(first, max_concurrency))
        self._doubling = True
        self._best_throughput = 0.0
        self._still = 0
        self.in_flight = 0
        self._full = False
        self._start_window()

    @property
    def limit(self) -> int:
        """Calls that may be under way now."""
        return int(self._limit)

    @property
    def room(self) -> int:
        """Places that are free now."""
        return max(0, self.limit - self.in_flight)

    def enter(self) -> float:
        """Take a place; the time, for `release`."""
        self.in_flight += 1
        self._full = self._full or self.in_flight >= self.limit
        return time.monotonic()

    def release(self, entered: float, *, answered: bool, turned_away: bool) -> None:
        """Give a place back.

        Args:
            entered: what `enter` gave.
            answered: the server did what was asked.
            turned_away: it said, or showed, that it has too much to do.
        """
        self.in_flight -= 1
        if entered >= self._began or answered:  # older calls tell of a limit that holds no more
            self._answered += answered
            self._turned_away += turned_away
            self._look()

    def restart(self) -> None:
        """Begin with one call: the server was down."""
        self._limit, self._doubling, self._best_throughput = 1.0, True, 0.0
        self._start_window()

    def _start_window(self) -> None:
        self._began, self._answered, self._turned_away, self._full = time.monotonic(), 0, 0, False

    def _look(self) -> None:
        lost = self._turned_away
        if lost > max(2.0, TOLERATED * self.limit) and lost > TOLERATED * (lost + self._answered):
            self._limit = max(1.0, self._limit * SHRINKAGE)
            self._doubling, self._best_throughput, self._still = False, 0.0, 0
            self._start_window()
        elif self._answered >= self.limit and time.monotonic() - self._began >= WINDOW:
            self._grow(self._answered / (time.monotonic() - self._began))
            self._start_window()

    def _grow(self, rate: float) -> None:
        """More calls at once, if the last step up paid and all places were taken."""
        if not self._full or self.limit == self._max_concurrency:
            return
        if rate > self._best_throughput * WORTH or self._still >= PATIENCE:
            self._best_throughput, self._still = rate, 0
            grown = self._limit * 2 if self._doubling else self._limit * GROWTH + 1
            self._limit = min(float(self._max_concurrency), grown)
        else:
            self._doubling = False
            self._still += 1
