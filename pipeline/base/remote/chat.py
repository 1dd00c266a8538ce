"""Chat completions: what a call's reply must hold to be one."""

from collections.abc import Mapping, Sequence
from typing import Any

from darklode.pipeline.base.remote.budget import Usage
from darklode.pipeline.base.remote.call_errors import BadReply, Passing, sanitize
from darklode.pipeline.base.remote.client import Call

Completion = Mapping[str, Any]

_FAILED = ("error", "abort")
"""What servers give as `finish_reason` where they failed midway."""

_COMPLETE = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"})
"""What they give where the reply is complete.

`stop`: OpenAI, vLLM, DeepSeek, and the compatible endpoints of Gemini and Anthropic (Gemini's own API: `STOP`);
`eos`, `eos_token`, `stop_sequence`: Text Generation Inference; `end_turn`: Anthropic's own; `COMPLETE`: Cohere's own.
"""

_CUT = frozenset({"length", "max_tokens", "model_length"})


def incomplete(choice: Mapping[str, Any]) -> str:
    """Why a choice is not known to be a complete reply; empty if it is. An unknown `finish_reason` is not."""
    ended = choice.get("finish_reason")
    name = ended.lower() if isinstance(ended, str) else None
    if choice["message"].get("refusal"):
        return "the model refused to answer"
    if name in _COMPLETE:
        return ""
    if name == "content_filter":
        return "the content filter stopped it"
    if name in _CUT:
        return "the reply was cut off at the token limit"
    reason = "it has no finish_reason" if ended is None else f"its finish_reason is {str(ended)[:40]!r}"
    return f"the reply may not be complete: {reason}"


def is_cut_off(choice: Mapping[str, Any]) -> bool:
    """Whether a choice was ended by the limit on its tokens."""
    return str(choice.get("finish_reason")).lower() in _CUT


def completion_of(response: Mapping[str, Any]) -> Completion:
    """The chat completion that a JSON object is, with its first choice alone: one with a message, in sound texts.

    Content that is a list of parts becomes the text of its parts.

    Raises:
        BadReply: it is none, or the server failed midway.
    """
    try:
        choice = _first(response["choices"])
        raw_message = {**choice["message"], **_joined_parts(choice["message"].get("content"))}
        message = {name: sanitize(value) if isinstance(value, str) else value for name, value in raw_message.items()}
    except (LookupError, TypeError, ValueError, AttributeError):
        raise BadReply("holds no chat completion") from None
    if choice.get("finish_reason") in _FAILED:
        raise BadReply(f"ended with the finish_reason {choice['finish_reason']}")
    return {**response, "choices": [{**choice, "message": message}]}


def _joined_parts(content: object) -> dict[str, str]:
    """Text, thoughts and refusal of content that is a list of typed parts; nothing of other content."""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return {}
    fields = (
        ("content", "text", "text"),
        ("reasoning_content", "thinking", "thinking"),
        ("refusal", "refusal", "refusal"),
    )
    texts = {
        name: [_text_of(part.get(key)) for part in content if part.get("type") == kind] for name, kind, key in fields
    }
    return {name: "".join(parts) for name, parts in texts.items() if parts}


def _text_of(content: object) -> str:
    """A part's text, which may itself be a list of text parts."""
    if isinstance(content, list):
        return "".join(_text_of(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _first(choices: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """By `index`, where they have one: servers may send choices in any order."""
    return min(choices, key=lambda choice: choice.get("index") or 0)


def fields(default: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a request: the given ones and, where they are not given, the default ones.

    A null leaves a field out; `max_completion_tokens` does so with the default `max_tokens`, which says the same.
    """
    other = {"max_tokens"} if overrides.get("max_completion_tokens") is not None else set()
    own = {name: value for name, value in default.items() if name not in other}
    return {name: value for name, value in (own | dict(overrides)).items() if value is not None}


def max_tokens(request: Mapping[str, Any]) -> int:
    """The most tokens of a request's reply; 0 where it sets no limit."""
    limits = [request.get(name) for name in ("max_tokens", "max_completion_tokens")]
    return max((limit for limit in limits if type(limit) is int), default=0)


def chat_call(
    body: bytes, estimate: Usage, name: str, tries: Mapping[type[Passing], int] | None = None
) -> Call[Completion]:
    """A call for a chat completion; see `Call`."""
    return Call(body, estimate, name, completion_of, tries or {})
