"""What a chat completion says of a pair, or why it says nothing.

From the log-probabilities of tokens to the probabilities of labels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.remote.budget import counted
from darklode.pipeline.judge.llm import nearly
from darklode.pipeline.judge.llm.forms import Form, Unreadable
from darklode.pipeline.judge.llm.prompt import Prompt
from darklode.pipeline.judge.port import REPLIES, ReplyBatch

Tokens = Sequence[Mapping[str, Any]]
"""`logprobs.content` of a chat completion, or some of it: texts, log-probabilities, alternatives."""

_CONTROL = re.compile(r"\s*|<[^<>\s]+>|\[[^\[\]\s]+\]")
"""What may follow the content: the token that ends the reply, as <|im_end|>."""


def content_tokens(tokens: Tokens, content: str, thoughts: str = "") -> Tokens:
    """The tokens that, joined, are a reply's content and its end; none where they are not there.

    A server that keeps thoughts apart from the content gives the tokens of both, the thoughts' first (vLLM with a
    reasoning parser).

    Args:
        tokens: of the whole reply.
        content: of its message.
        thoughts: of its message, where the server gives them.
    """
    texts, end = [token["token"] for token in tokens], len(tokens)
    while end:
        start = _start_of_end(texts[:end], content.strip())
        if start is not None:
            only_thoughts = thoughts and "".join(texts[:end]).rstrip().endswith(thoughts.rstrip())
            return [] if only_thoughts else tokens[start:end]
        end -= 1
        if not _CONTROL.fullmatch(texts[end]):
            break
    return []


def _start_of_end(texts: Sequence[str], wanted: str) -> int | None:
    """From which text on the last ones are, joined, what is wanted; None where they are not."""
    joined, start = "", len(texts)
    while start and len(joined.strip()) < len(wanted):
        start -= 1
        joined = texts[start] + joined
    return start if joined.strip() == wanted else None


def start_of(label: str, tokens: Tokens, *, key: bool) -> int | None:
    """Characters of the tokens before the label that stands in them last; None where it does not, or not once.

    Args:
        label: as it was read.
        tokens: of the content.
        key: whether it is the value of the key "label" of a JSON object.
    """
    before = r'(?<!\\)"label"\s*:\s*"?\s*' if key else ""
    found = [*re.finditer(f"{before}({re.escape(label)})", "".join(token["token"] for token in tokens), re.I)]
    return found[-1].start(1) if len(found) == 1 or (found and not key) else None


def label_probabilities(tokens: Tokens, start: int, labels: Sequence[str]) -> dict[str, float]:
    """Probability of each label, renormalised over the labels; empty where the tokens come to no label.

    At each token of the label, every alternative that leads to one label only adds its probability to that label;
    labels that begin alike are told apart at the tokens that follow. What was likelier but leads to no label is
    left out.

    Args:
        tokens: of the content.
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
    if len(_led(text, labels)) != 1 or not total > 0:
        return {}
    return {label: share / total for label, share in mass.items()}


def _alternatives(token: Mapping[str, Any]) -> Tokens:
    """The chosen token and the others, each once."""
    top: list[Mapping[str, Any]] = token.get("top_logprobs") or []
    return top if any(one["token"] == token["token"] for one in top) else [token, *top]


def _led(text: str, labels: Sequence[str]) -> list[str]:
    """Labels that a reply beginning so can still be, or already is."""
    fold = nearly.fold(labels)
    found = fold(text.lstrip())
    return [label for label in labels if _leads(found, fold(label))] if found else list(labels)


def _leads(text: str, label: str) -> bool:
    """Whether the text begins the label, or is it and then something that ends it, as the quote of a JSON string."""
    return label.startswith(text) or (text.startswith(label) and not text[len(label)].isalnum())


CONTRADICTORY = 0.1
"""A label that its own log-probabilities give less than this was not meant."""

_LONGEST_RAW = 4000


@dataclass
class Reading:
    """A verdict in the making.

    Attributes:
        said: columns of `REPLIES`; unknown ones are left out.
        refused: whether the pair is not to be asked again.
        thought: whether the model thought before it answered.
    """

    said: dict[str, Any] = field(default_factory=dict)
    refused: bool = False
    thought: bool = False

    @property
    def readable(self) -> bool:
        """Whether there is a label."""
        return "relevant" in self.said

    def add_usage(self, earlier: Reading) -> None:
        """Count an earlier attempt's tokens in: they were paid for."""
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "attempts"):
            if earlier.said.get(name) is not None:
                self.said[name] = counted((self.said.get(name) or 0) + earlier.said[name])


def read(completion: Mapping[str, Any], form: Form, prompt: Prompt) -> Reading:
    """A reply's label, probabilities and usage; what cannot be read leaves the raw reply and the reason.

    Args:
        completion: has at least one choice with a message (see `chat.completion_of`).
        form: it was asked for in.
        prompt: whose labels are expected.
    """
    choice = completion["choices"][0]
    content = choice["message"].get("content")
    reading = Reading(
        {"attempts": 1} | _usage(completion), thought=_thought(choice["message"], completion.get("usage"))
    )
    try:
        _check(choice, content)
        label, reason = form.read(content, prompt.labels)
        shares = _shares(choice, label, form, prompt)
    except Unreadable as error:
        reading.said |= {"raw_reply": _raw(choice["message"]), "error": str(error)}
    else:
        reading.said |= {"raw_reply": content, "rationale": reason} | _verdict(label, shares, prompt)
    return reading


def _raw(message: Mapping[str, Any]) -> str | None:
    """What it said, or else why it refused."""
    said = message.get("content")
    raw = said if isinstance(said, str) else message.get("refusal")
    return str(raw)[:_LONGEST_RAW] if raw else None


def _thoughts(message: Mapping[str, Any]) -> str:
    """Those that the server keeps apart from the content, by either of the two names in use."""
    given = message.get("reasoning_content") or message.get("reasoning")
    return given if isinstance(given, str) else ""


def _thought(message: Mapping[str, Any], usage: object) -> bool:
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    hidden = counted(details.get("reasoning_tokens")) if isinstance(details, dict) else None
    content = message.get("content")
    return bool(_thoughts(message).strip() or hidden or (isinstance(content, str) and nearly.thoughts_in(content)))


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
    """Probabilities of the labels; none where the server gave none, or none of the label's own tokens."""
    given, message = choice.get("logprobs"), choice["message"]
    if not form.logprobs or not isinstance(given, dict) or not (tokens := given.get("content")):
        return {}
    try:
        own = content_tokens(tokens, message["content"], _thoughts(message))
        start = start_of(label, own, key=form.is_object)
        shares = {} if start is None else label_probabilities(own, start, prompt.labels)
    except (KeyError, TypeError, AttributeError, ArithmeticError):
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
    given = {
        "prompt_tokens": usage.get("prompt_tokens"),
        "cached_tokens": cached,
        "completion_tokens": usage.get("completion_tokens"),
    }
    return {name: tokens for name, said in given.items() if (tokens := counted(said)) is not None}


def reply_batch(readings: Iterable[tuple[int, Reading]]) -> ReplyBatch:
    """Rows and their readings as a table."""
    held = list(readings)
    columns = [pa.array([one.said.get(name) for _, one in held], REPLIES.field(name).type) for name in REPLIES.names]
    return ReplyBatch(np.array([row for row, _ in held], np.int64), pa.Table.from_arrays(columns, schema=REPLIES))
