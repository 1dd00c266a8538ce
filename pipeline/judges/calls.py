"""What a server's answer to a call means: a completion, a refusal of this pair, a passing failure, or the end."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pipeline.endpoint import ABOUT_LENGTH, Transient, passing, told
from pipeline.errors import DarklodeError, MissingPart
from pipeline.judges.http import Response

_LENGTH = re.compile(
    r"context.{0,3}(length|window|size)|too (long|large|many tokens)|max(imum)?[ _](model_len|input|prompt)|exceed",
    re.I,
)


class Refused(Exception):
    """The server will not take this call, whenever it is sent: what it said, and whether it is about length."""

    def __init__(self, said: str, *, too_long: bool) -> None:
        super().__init__(said)
        self.too_long = too_long


def completion_of(response: Response, key: str, key_env: str, section: str = "judge") -> Mapping[str, Any]:
    """The chat completion in a response: it has a choice with a message; `section` is that of the settings.

    Raises:
        Transient: a status that may pass, or a success that holds no completion.
        Refused: the call itself is at fault.
        DarklodeError: no call can succeed: key, model, address or credit. No message holds the key.
    """
    status = response.status
    if status == 200:
        return _completion(response.content)
    said, code = _error(response.content, key)
    if failure := passing(status, code, response.retry_after):
        raise failure
    if status in ABOUT_LENGTH:
        raise Refused(f"status {status}: {said}", too_long=status == 413 or bool(_LENGTH.search(said)))
    if status in {401, 403}:
        named = f"the key in {key_env}" if key_env else f"a call without a key ({section}.key_env is empty)"
        raise MissingPart(f"refused {named}, status {status}: check the key and what it may use")
    if status == 404:
        raise MissingPart(f"answered 404: check {section}.model and {section}.base_url. It said: {said}")
    raise DarklodeError(f"answered {status}: check {section}.base_url. It said: {said}")


def _completion(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
        message = found["choices"][0]["message"]
    except (ValueError, LookupError, TypeError):
        raise Transient("answered 200, but with no chat completion", billed=True) from None
    if not isinstance(message, dict) or not isinstance(found["choices"][0], dict):
        raise Transient("answered 200, but with no chat completion", billed=True)
    completion: Mapping[str, Any] = found
    return completion


def _error(content: bytes, key: str) -> tuple[str, str | None]:
    """What the server said, and its code for it."""
    try:
        found = json.loads(content)
        error = found.get("error", found)
        return told(str(error.get("message", error)), key), error.get("code")
    except (ValueError, AttributeError):
        return told(content[:2000].decode("utf-8", "replace"), key), None
