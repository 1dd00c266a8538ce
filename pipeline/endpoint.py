"""What all clients of a remote server share: its address, the key, and failures that may pass."""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from email.utils import parsedate_to_datetime

from pipeline.errors import MissingPart, SettingsError
from schemas.address import holds_secret, host_and_path

LONGEST_RETRY_AFTER = 120.0
TRANSIENT = frozenset({408, 409, 425, 429})
ABOUT_LENGTH = frozenset({400, 413, 422})


class Transient(Exception):
    """A failure that may pass: why, seconds that the server asks to wait, and whether it may have been billed."""

    def __init__(self, reason: str, retry_after: float | None = None, *, billed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        self.billed = billed


class Stopped(Exception):
    """A call gave up because another one failed: the failure to report is the other's."""


def passing(status: int, code: str | None, header: str | None) -> Transient | None:
    """The failure behind a status that may pass; None for any other.

    Args:
        status: of the reply.
        code: the error's, where the body names one; OpenAI's 429 for want of credit is mended by no waiting.
        header: of the reply, retry-after.
    """
    if (status in TRANSIENT or status >= 500) and code != "insufficient_quota":
        return Transient(f"answered {status}", retry_after(header))
    return None


def backoff(tries: int, failure: Transient, first: float, longest: float) -> float:
    """Seconds until the next try: any time up to a bound that doubles, and at least what the server asked for."""
    wait = random.uniform(0, min(longest, first * 2.0 ** min(tries, 10)))  # noqa: S311 (no secret)
    return wait + (failure.retry_after or 0)


async def pause(seconds: float, stop: asyncio.Event) -> None:
    """Wait.

    Raises:
        Stopped: another call failed meanwhile.
    """
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
    raise Stopped


def address(base_url: str, key_env: str) -> str:
    """Host, port and path of a server, for ids and messages.

    Raises:
        SettingsError: another scheme, no host, or a user name, password or query in it; the message doesn't show it.
    """
    if holds_secret(base_url):
        raise SettingsError(
            "base_url must not hold a user name, password or query: put the key into the environment variable that "
            f"key_env names ({key_env or 'none now'})"
        )
    found = host_and_path(base_url)
    if found is None:
        raise SettingsError(f"base_url {base_url!r} must be an address such as https://api.openai.com/v1")
    return found


def key_from(key_env: str, needed_by: str) -> str:
    """The key from the environment; empty where none is to be sent.

    Raises:
        MissingPart: the variable is not set.
    """
    key = os.environ.get(key_env, "").strip() if key_env else ""
    if key_env and not key:
        raise MissingPart(f"{needed_by} needs a key: set the environment variable {key_env}")
    return key


def retry_after(value: str | None) -> float | None:
    """Seconds to wait, at most two minutes, from a header that holds seconds or an HTTP date; None if neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER) if math.isfinite(seconds) else None


def told(said: str, key: str) -> str:
    """What a server said, in one line of at most 300 characters, without the key."""
    line = " ".join(said.split())
    return (line.replace(key, "(the key)") if key else line)[:300]
