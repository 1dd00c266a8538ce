"""Chat completions: what a call's reply must hold to be one."""

from collections.abc import Mapping
from typing import Any

from darklode.pipeline.base.remote.budget import Usage
from darklode.pipeline.base.remote.client import Call
from darklode.pipeline.base.remote.faults import BadReply, Passing

Completion = Mapping[str, Any]


def completion_of(found: Mapping[str, Any]) -> Completion:
    """The chat completion that a JSON object is: it has a choice with a message.

    Raises:
        BadReply: it is none.
    """
    try:
        whole = isinstance(found["choices"][0]["message"], dict)
    except (LookupError, TypeError):
        whole = False
    if not whole:
        raise BadReply("holds no chat completion")
    return found


def chat_call(
    body: bytes, estimate: Usage, name: str, tries: Mapping[type[Passing], int] | None = None
) -> Call[Completion]:
    """A call for a chat completion; see `Call`."""
    return Call(body, estimate, name, completion_of, tries or {})
