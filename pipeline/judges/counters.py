"""What a judge has done so far, for whoever shows it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

_WINDOW = 10.0


@dataclass
class Counters:
    """Live numbers of a judge, all from the beginning on; read them from any thread.

    Attributes:
        answered: pairs with a verdict, null ones included.
        nulls: verdicts without a label.
        truncated: verdicts on a chunk that was cut.
        in_flight: calls under way now.
        limit: most of them that the servers seem to bear now.
        calls: sent, in whatever way they ended.
        retries: calls that failed on the way and were sent again.
        asked_again: replies that could not be read and were asked for again.
        prompt_tokens, cached_tokens, completion_tokens: as the server counts them.
        cost: money spent, in the unit of the prices.
        paused: what the judge waits for, while it waits for a server to come back.
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

    def answer(self, *, null: bool, truncated: bool) -> None:
        """Count a verdict."""
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
