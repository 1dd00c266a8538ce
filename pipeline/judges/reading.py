"""What a chat completion says of a pair, or why it says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.judges.asker import Answered
from pipeline.judges.forms import Form, Unreadable
from pipeline.judges.logprobs import label_probabilities, start_of
from pipeline.judges.port import REPLIES
from pipeline.judges.prompt import Prompt

CONTRADICTORY = 0.1
"""A label that its own log-probabilities give less than this was not meant."""

_LONGEST_RAW = 4000


@dataclass
class Reading:
    """A verdict in the making: columns of `REPLIES`, unknown ones left out; refused pairs are not asked again."""

    said: dict[str, Any] = field(default_factory=dict)
    refused: bool = False

    @property
    def readable(self) -> bool:
        """Whether there is a label."""
        return "relevant" in self.said

    def add_usage(self, earlier: Reading) -> None:
        """Count an earlier attempt's tokens in: they were paid for."""
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "attempts"):
            if earlier.said.get(name) is not None:
                self.said[name] = (self.said.get(name) or 0) + earlier.said[name]


def read(completion: Mapping[str, Any], form: Form, prompt: Prompt) -> Reading:
    """A reply's label, probabilities and usage; what cannot be read leaves the raw reply and the reason.

    Args:
        completion: has at least one choice with a message (see `calls.completion_of`).
        form: it was asked for in.
        prompt: whose labels are expected.
    """
    reading = Reading({"attempts": 1} | _usage(completion))
    choice = completion["choices"][0]
    content = choice["message"].get("content")
    try:
        _check(choice, content)
        label, reason = form.read(content, prompt.labels)
        shares = _shares(choice, label, form, prompt)
    except Unreadable as error:
        raw = content if isinstance(content, str) else choice["message"].get("refusal")
        return Reading(reading.said | {"raw_reply": raw and str(raw)[:_LONGEST_RAW], "error": str(error)})
    reading.said |= {"raw_reply": content, "rationale": reason} | _verdict(label, shares, prompt)
    return reading


def _check(choice: Mapping[str, Any], content: object) -> None:
    ended = choice.get("finish_reason")
    if choice["message"].get("refusal") or ended == "content_filter":
        raise Unreadable(
            "the model refused to answer" if ended != "content_filter" else "the content filter stopped it"
        )
    if ended == "length":
        raise Unreadable("the reply was cut off at the token limit")
    if not isinstance(content, str) or not content.strip():
        raise Unreadable("the reply is empty")


def _shares(choice: Mapping[str, Any], label: str, form: Form, prompt: Prompt) -> dict[str, float]:
    """Probabilities of the labels; none where the server gave none."""
    given = choice.get("logprobs")
    if not form.logprobs or not isinstance(given, dict) or not (tokens := given.get("content")):
        return {}
    try:
        start = start_of(f'"{label}"', tokens) if form.mode == "json" or form.rationale else 0
        shares = label_probabilities(tokens, start, prompt.labels)
    except (KeyError, TypeError, AttributeError):
        return {}
    if shares and shares[label] < CONTRADICTORY:
        raise Unreadable(f"the reply is contradictory: it gives its own label a probability of {shares[label]:.3f}")
    return shares


def _verdict(label: str, shares: Mapping[str, float], prompt: Prompt) -> dict[str, Any]:
    grades, least = prompt.head.labels, prompt.head.relevant_from
    said: dict[str, Any] = {"relevant": grades[label] >= least}
    if prompt.graded:
        said["grade"] = grades[label]
    if shares:
        said["probability"] = min(1.0, sum(share for one, share in shares.items() if grades[one] >= least))
        if prompt.graded:
            said["expected_grade"] = sum(share * grades[one] for one, share in shares.items())
    return said


def _usage(completion: Mapping[str, Any]) -> dict[str, Any]:
    usage = completion.get("usage")
    if not isinstance(usage, dict):
        return {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    found = {
        "prompt_tokens": usage.get("prompt_tokens"),
        "cached_tokens": cached,
        "completion_tokens": usage.get("completion_tokens"),
    }
    return {name: value for name, value in found.items() if isinstance(value, int)}


def answered(readings: Iterable[tuple[int, Reading]]) -> Answered:
    """Rows and their readings as a table."""
    held = list(readings)
    columns = [pa.array([one.said.get(name) for _, one in held], REPLIES.field(name).type) for name in REPLIES.names]
    return Answered(np.array([row for row, _ in held], np.int64), pa.Table.from_arrays(columns, schema=REPLIES))
