"""What a judge may still spend, in tokens and in money."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.errors import DarklodeError
from pipeline.judges.counters import Counters
from schemas.settings import MemberSettings


@dataclass
class Budget:
    """Calls are reserved at a high estimate before they are sent, and settled at what the server says.

    A call whose answer was lost counts at its estimate: it may have been billed.
    """

    settings: MemberSettings
    counters: Counters
    reserved_prompt: int = 0
    reserved_completion: int = 0

    def waits(self, prompt: int, completion: int) -> bool:
        """Whether the call must wait: what is under way might use up the rest, but may not."""
        return bool(self.reserved_prompt) and self._over(prompt, completion) is not None

    def reserve(self, prompt: int, completion: int) -> None:
        """Set tokens aside for a call.

        Raises:
            DarklodeError: with them a limit could be exceeded.
        """
        if over := self._over(prompt, completion):
            raise DarklodeError(f"{over}. What was answered is kept; raise the limit to go on from there")
        self.reserved_prompt += prompt
        self.reserved_completion += completion

    def settle(self, reserved: tuple[int, int], used: tuple[int, int]) -> None:
        """Book what a call used in place of what was reserved for it; tokens of prompt and completion."""
        self.reserved_prompt -= reserved[0]
        self.reserved_completion -= reserved[1]
        self.counters.prompt_tokens += used[0]
        self.counters.completion_tokens += used[1]
        self.counters.cost = self._cost(self.counters.prompt_tokens, self.counters.completion_tokens)

    def _over(self, prompt: int, completion: int) -> str | None:
        """The limit that the call could exceed, in words."""
        prompt += self.counters.prompt_tokens + self.reserved_prompt
        completion += self.counters.completion_tokens + self.reserved_completion
        spent, given = self.counters, self.settings
        so_far = f"{spent.prompt_tokens + spent.completion_tokens:,} tokens and {spent.cost:.4f} spent so far"
        if given.token_limit is not None and prompt + completion > given.token_limit:
            return f"judge.token_limit {given.token_limit:,} would be exceeded: {so_far}"
        if given.spending_limit is not None and self._cost(prompt, completion) > given.spending_limit:
            return f"judge.spending_limit {given.spending_limit:g} would be exceeded: {so_far}"
        return None

    def _cost(self, prompt: int, completion: int) -> float:
        prices = self.settings
        return (prompt * prices.prompt_price_per_million + completion * prices.completion_price_per_million) / 1e6
