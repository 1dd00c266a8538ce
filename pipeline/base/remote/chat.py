"""Parse and validate chat completions."""

from collections.abc import Mapping, Sequence
from typing import Any

from darklode.pipeline.base.remote.budget import Usage
from darklode.pipeline.base.remote.call_errors import BadReply, TransientError, sanitize
from darklode.pipeline.base.remote.client import Call

Completion = Mapping[str, Any]

_FAILURE_REASONS = ("error", "abort")
"""Values of `finish_reason` if the server failed during generation."""

_COMPLETE_REASONS = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"})
"""Values of `finish_reason` for a complete reply.

`stop`: OpenAI, vLLM, DeepSeek, and the compatible endpoints of Gemini and Anthropic (Gemini's own API: `STOP`);
`eos`, `eos_token`, `stop_sequence`: Text Generation Inference; `end_turn`: Anthropic's own; `COMPLETE`: Cohere's own.
"""

_TRUNCATION_REASONS = frozenset({"length", "max_tokens", "model_length"})


def incomplete_reason(choice: Mapping[str, Any]) -> str:
    """Why a choice may be incomplete, or ""; an unknown `finish_reason` counts as incomplete."""
    finish_reason = choice.get("finish_reason")
    name = finish_reason.lower() if isinstance(finish_reason, str) else None
    if choice["message"].get("refusal"):
        return "the model refused to answer"
    if name in _COMPLETE_REASONS:
        return ""
    if name == "content_filter":
        return "the content filter stopped it"
    if name in _TRUNCATION_REASONS:
        return "the reply was cut off at the token limit"
    reason = "it has no finish_reason" if finish_reason is None else f"its finish_reason is {str(finish_reason)[:40]!r}"
    return f"the reply may not be complete: {reason}"


def is_truncated(choice: Mapping[str, Any]) -> bool:
    """Whether a choice was truncated by the token limit."""
    return str(choice.get("finish_reason")).lower() in _TRUNCATION_REASONS


def completion_of(response: Mapping[str, Any]) -> Completion:
    """Validate a chat completion; keeps its first choice only, with sanitized texts.

    Content as a list of parts becomes the joined text of the parts.

    Raises:
        BadReply: it is not a chat completion, or the server failed during generation.
    """
    try:
        choice = _first(response["choices"])
        raw_message = {**choice["message"], **_joined_parts(choice["message"].get("content"))}
        message = {name: sanitize(value) if isinstance(value, str) else value for name, value in raw_message.items()}
    except (LookupError, TypeError, ValueError, AttributeError):
        raise BadReply("is not a chat completion") from None
    if choice.get("finish_reason") in _FAILURE_REASONS:
        raise BadReply(f"ended with the finish_reason {choice['finish_reason']}")
    return {**response, "choices": [{**choice, "message": message}]}


def _joined_parts(content: object) -> dict[str, str]:
    """Text, reasoning and refusal of content that is a list of typed parts; empty for other content."""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return {}
    keys = (
        ("content", "text", "text"),
        ("reasoning_content", "thinking", "thinking"),
        ("refusal", "refusal", "refusal"),
    )
    texts = {
        name: [_text_of(part.get(key)) for part in content if part.get("type") == kind] for name, kind, key in keys
    }
    return {name: "".join(parts) for name, parts in texts.items() if parts}


def _text_of(content: object) -> str:
    """The text of a part, which may itself be a list of text parts."""
    if isinstance(content, list):
        return "".join(_text_of(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _first(choices: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The choice with the lowest `index`: servers may send choices in any order."""
    return min(choices, key=lambda choice: choice.get("index") or 0)


def merge_fields(default: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a request: the overrides, and defaults for the other fields.

    A null removes a field; `max_completion_tokens` removes the default `max_tokens`, its older name.
    """
    superseded = {"max_tokens"} if overrides.get("max_completion_tokens") is not None else set()
    defaults = {name: value for name, value in default.items() if name not in superseded}
    return {name: value for name, value in (defaults | dict(overrides)).items() if value is not None}


def max_tokens(request: Mapping[str, Any]) -> int:
    """Token limit of a request's reply; 0 if there is none."""
    limits = [request.get(name) for name in ("max_tokens", "max_completion_tokens")]
    return max((limit for limit in limits if type(limit) is int), default=0)


def chat_call(
    body: bytes, estimate: Usage, name: str, tries: Mapping[type[TransientError], int] | None = None
) -> Call[Completion]:
    """A call for a chat completion."""
    return Call(body, estimate, name, completion_of, tries or {})
