"""What a judge asks of an HTTP client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Response:
    """Status, the header retry-after if there is one, and the body."""

    status: int
    retry_after: str | None
    content: bytes


class Http(Protocol):
    """Posts JSON to one address, as often at once as it is called; used in one event loop and closed there."""

    async def post(self, content: bytes) -> Response:
        """Send one call.

        Raises:
            Transient: there was no whole answer.
        """
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...
