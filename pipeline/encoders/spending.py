"""What requests cost so far, and whether one more may be sent."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.errors import DarklodeError


@dataclass
class Spending:
    """Tokens and money spent; money is in the unit of the price (dollars, say), for a million tokens.

    A request is reserved at its estimate before it is sent and settled at what the endpoint says it billed. One
    whose reply was lost counts at its estimate: it may have been billed.
    """

    price_per_million: float
    limit: float | None
    tokens: int = 0
    reserved: int = 0

    @property
    def cost(self) -> float:
        """Money spent."""
        return self.tokens * self.price_per_million / 1e6

    def reserve(self, tokens: int) -> None:
        """Set tokens aside for a request.

        Raises:
            DarklodeError: with them the limit could be exceeded.
        """
        if not self.allows(tokens):
            planned = self._planned(tokens)
            raise DarklodeError(
                f"spending_limit {self.limit:g} would be exceeded: {self.cost:.4f} spent for {self.tokens:,} tokens, "
                f"and the requests under way and the next may bring it to {planned:.4f}. What was received is kept; "
                "raise spending_limit to go on from there"
            )
        self.reserved += tokens

    def allows(self, tokens: int) -> bool:
        """Whether a request of so many tokens keeps within the limit, whatever those under way will cost."""
        return self.limit is None or self._planned(tokens) <= self.limit

    def _planned(self, tokens: int) -> float:
        return (self.tokens + self.reserved + tokens) * self.price_per_million / 1e6

    def settle(self, reserved: int, tokens: int) -> None:
        """Book a request's tokens in place of what was reserved for it."""
        self.reserved -= reserved
        self.tokens += tokens
