"""What a chat completion says of a pair, or why it says nothing.

From the log-probabilities of tokens to the probabilities of labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.judge.llm.forms import Form, Unreadable
from darklode.pipeline.judge.llm.prompt import Prompt
from darklode.pipeline.judge.port import REPLIES, ReplyBatch


def start_of(quoted_label: str, tokens: Sequence[Mapping[str, Any]]) -> int:
    """Characters of the tokens before the label, given with its quotes, that stands in them last."""
    return "".join(token["token"] for token in tokens).rfind(quoted_label) + 1


def label_probabilities(tokens: Sequence[Mapping[str, Any]], start: int, labels: Sequence[str]) -> dict[str, float]:
    """Probability of each label, renormalised over the labels; empty where the tokens say nothing of them.

    At each token of the label, every alternative that leads to one label only adds its probability to that label;
    labels that begin alike are told apart at the tokens that follow. What was likelier but leads to no label is
    left out.

    Args:
        tokens: `logprobs.content` of a chat completion.
        start: characters of the tokens before the label.
        labels: none of which begins with another.
    """
    mass = dict.fromkeys(labels, 0.0)
    text, path = "", 0.0
    skipped = 0
    for token in tokens:
        before = max(0, start - skipped)
        skipped += len(token["token"])
        if skipped <= start:
            continue
        for one in _alternatives(token):
            if one["token"][:before] == token["token"][:before]:
                led = _led(text + one["token"][before:], labels)
                if len(led) == 1:
                    mass[led[0]] += math.exp(min(path + one["logprob"], 0.0))
        text += token["token"][before:]
        path += token["logprob"]
        if len(_led(text, labels)) == 1 and text.strip():
            break
    total = sum(mass.values())
    return {label: share / total for label, share in mass.items()} if total > 0 else {}


def _alternatives(token: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The chosen token and the others, each once."""
    top: list[Mapping[str, Any]] = token.get("top_logprobs") or []
    return top if any(one["token"] == token["token"] for one in top) else [token, *top]


def _led(text: str, labels: Sequence[str]) -> list[str]:
    """Labels that a reply beginning so can still be, or already is."""
    found = text.lstrip()
    return [label for label in labels if label.startswith(found) or _begins(found, label)] if found else list(labels)


def _begins(text: str, label: str) -> bool:
    """Whether the text is the label and then something that ends it, such as the quote that closes a JSON string."""
    return text.startswith(label) and not text[len(label)].isalnum()


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


def reply_batch(readings: Iterable[tuple[int, Reading]]) -> ReplyBatch:
    """Rows and their readings as a table."""
    held = list(readings)
    columns = [pa.array([one.said.get(name) for _, one in held], REPLIES.field(name).type) for name in REPLIES.names]
    return ReplyBatch(np.array([row for row, _ in held], np.int64), pa.Table.from_arrays(columns, schema=REPLIES))
