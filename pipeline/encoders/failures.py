"""What a failed request means: may it pass, and what should the user be told."""

from __future__ import annotations

import math
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from pipeline.errors import DarklodeError, MissingPart
from schemas.settings import OpenAIEncoder as Settings

if TYPE_CHECKING:
    import openai

LONGEST_RETRY_AFTER = 120.0
_TRANSIENT = {408, 409, 425, 429}
_ABOUT_LENGTH = {400, 413, 422}


class Transient(Exception):
    """A failure that may pass: why, seconds that the server asks to wait, and whether it may have been billed."""

    def __init__(self, reason: str, retry_after: float | None = None, *, billed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        self.billed = billed


def status_failure(error: openai.APIStatusError, settings: Settings, where: str, key: str) -> Exception:
    """The failure behind a status that is no success: Transient, or an error for the user, without the key."""
    status, said = error.status_code, _said(error, key)
    no_money = error.code == "insufficient_quota"  # OpenAI's 429 that no waiting mends
    if (status in _TRANSIENT or status >= 500) and not no_money:
        return Transient(f"answered {status}", retry_after(error.response.headers.get("retry-after")))
    if status in {401, 403}:
        named = f"the key in {settings.key_env}" if settings.key_env else "a request without a key (key_env is empty)"
        return MissingPart(f"{where} refused {named}, status {status}: check the key and what it may use")
    if status == 404:
        return MissingPart(f"{where} answered 404: check the encoder's model and base_url. It said: {said}")
    hint = "; lower max_tokens, batch_tokens or batch_texts if it is about length" if status in _ABOUT_LENGTH else ""
    return DarklodeError(f"{where} refused the request, status {status}{hint}. It said: {said}")


def connection_failure(error: openai.APIConnectionError, seconds: float) -> Transient:
    """The failure behind a request without a reply; only one that never reached the server cannot have been billed."""
    name = type(error.__cause__ or error).__name__
    if "Timeout" in name:
        return Transient(f"gave no answer in {seconds:g} s", billed=name != "ConnectTimeout")
    return Transient(f"broke the connection ({name})", billed=name != "ConnectError")


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


def _said(error: openai.APIStatusError, key: str) -> str:
    said = " ".join(str(error.message).split())
    return (said.replace(key, "(the key)") if key else said)[:300]
