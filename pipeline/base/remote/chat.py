"""Chat completions: what a call's reply must hold to be one."""

from collections.abc import Mapping, Sequence
from typing import Any

from darklode.pipeline.base.remote.budget import Usage
from darklode.pipeline.base.remote.client import Call
from darklode.pipeline.base.remote.faults import BadReply, Passing, sound

Completion = Mapping[str, Any]

_FAILED = ("error", "abort")
"""What servers give as `finish_reason` where they failed midway."""


def completion_of(found: Mapping[str, Any]) -> Completion:
    """The chat completion that a JSON object is, with its first choice alone: one with a message, in sound texts.

    Raises:
        BadReply: it is none, or the server failed midway.
    """
    try:
        choice = _first(found["choices"])
        message = {name: sound(said) if isinstance(said, str) else said for name, said in choice["message"].items()}
    except (LookupError, TypeError, ValueError, AttributeError):
        raise BadReply("holds no chat completion") from None
    if choice.get("finish_reason") in _FAILED:
        raise BadReply(f"ended with the finish_reason {choice['finish_reason']}")
    return {**found, "choices": [{**choice, "message": message}]}


def _first(choices: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """By `index`, where they have one: servers may send choices in any order."""
    return min(choices, key=lambda choice: choice.get("index") or 0)


def chat_call(
    body: bytes, estimate: Usage, name: str, tries: Mapping[type[Passing], int] | None = None
) -> Call[Completion]:
    """A call for a chat completion; see `Call`."""
    return Call(body, estimate, name, completion_of, tries or {})
