"""What a failed request means: may it pass, and what should the user be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.endpoint import ABOUT_LENGTH, Transient, passing, told
from pipeline.errors import DarklodeError, MissingPart
from schemas.settings import OpenAIEncoder as Settings

if TYPE_CHECKING:
    import openai


def status_failure(error: openai.APIStatusError, settings: Settings, where: str, key: str) -> Exception:
    """The failure behind a status that is no success: Transient, or an error for the user, without the key."""
    status, said = error.status_code, told(str(error.message), key)
    if failure := passing(status, error.code, error.response.headers.get("retry-after")):
        return failure
    if status in {401, 403}:
        named = f"the key in {settings.key_env}" if settings.key_env else "a request without a key (key_env is empty)"
        return MissingPart(f"{where} refused {named}, status {status}: check the key and what it may use")
    if status == 404:
        return MissingPart(f"{where} answered 404: check the encoder's model and base_url. It said: {said}")
    hint = "; lower max_tokens, batch_tokens or batch_texts if it is about length" if status in ABOUT_LENGTH else ""
    return DarklodeError(f"{where} refused the request, status {status}{hint}. It said: {said}")


def connection_failure(error: openai.APIConnectionError, seconds: float) -> Transient:
    """The failure behind a request without a reply; only one that never reached the server cannot have been billed."""
    name = type(error.__cause__ or error).__name__
    if "Timeout" in name:
        return Transient(f"gave no answer in {seconds:g} s", billed=name != "ConnectTimeout")
    return Transient(f"broke the connection ({name})", billed=name != "ConnectError")
