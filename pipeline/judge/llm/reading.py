"""What a chat completion says of a pair, or why it says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.budget import counted
from darklode.pipeline.judge.llm import nearly
from darklode.pipeline.judge.llm.forms import LABEL_TOKENS, Form, RequestTemplate, Unreadable
from darklode.pipeline.judge.llm.logprobs import content_tokens, label_probabilities, start_of
from darklode.pipeline.judge.llm.prompt import Prompt
from darklode.pipeline.judge.llm.served import other_model
from darklode.pipeline.judge.port import REPLIES, ReplyBatch

EVEN = np.float32(0.5)
"""From this probability on relevance is the likelier."""

_LONGEST_RAW = 4000


@dataclass
class Reading:
    """A verdict in the making.

    Attributes:
        said: columns of `REPLIES`; unknown ones are left out.
        refused: whether the pair is not to be asked again.
        thought: whether the model thought before it answered.
        other_model: what is to be said of a reply in another model's name; empty where there is nothing.
    """

    said: dict[str, Any] = field(default_factory=dict)
    refused: bool = False
    thought: bool = False
    other_model: str = ""

    @property
    def readable(self) -> bool:
        """Whether there is a label."""
        return "relevant" in self.said

    def add_usage(self, earlier: Reading) -> None:
        """Count an earlier attempt in: its tokens were paid for. A pair that was refused has no attempts left."""
        tokens = ("prompt_tokens", "cached_tokens", "completion_tokens")
        for name in tokens if self.refused else (*tokens, "attempts"):
            if earlier.said.get(name) is not None:
                self.said[name] = counted((self.said.get(name) or 0) + earlier.said[name])


def read(completion: Mapping[str, Any], template: RequestTemplate) -> Reading:
    """A reply's label, probabilities and usage; what cannot be read leaves the raw reply and the reason.

    Args:
        completion: has at least one choice with a message (see `chat.completion_of`).
        template: what it is a reply to.

    Raises:
        DarklodeError: it names another model than was asked, and `judge.trust_name` is not set.
    """
    other = other_model(completion, template.settings)
    if other and not template.settings.trust_name:
        raise DarklodeError(other)
    choice, prompt = completion["choices"][0], template.prompt
    content = choice["message"].get("content")
    thought = _thought(choice["message"], completion.get("usage"))
    reading = Reading({"attempts": 1} | _usage(completion), thought=thought, other_model=other)
    try:
        _check(choice, content)
        label, reason = template.form.read(content, prompt.labels)
        shares = _shares(choice, label, template.form, prompt)
        _check_agreement(label, shares, template.settings.max_disagreement)
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
        return {} if start is None else label_probabilities(own, start, prompt.labels)
    except (KeyError, TypeError, AttributeError, ArithmeticError):
        return {}


def _check_agreement(label: str, shares: Mapping[str, float], most: float) -> None:
    if shares and 1 - shares[label] > most:
        raise Unreadable(f"the reply is contradictory: it gives its own label a probability of {shares[label]:.3f}")


def _verdict(label: str, shares: Mapping[str, float], prompt: Prompt) -> dict[str, Any]:
    grades, least = prompt.head.labels, prompt.head.relevant_from
    said: dict[str, Any] = {"relevant": grades[label] >= least}
    if prompt.graded:
        said["grade"] = grades[label]
    if shares:
        said["probability"] = min(1.0, sum(share for one, share in shares.items() if grades[one] >= least))
        said["contradicted"] = said["relevant"] != bool(np.float32(said["probability"]) >= EVEN)
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


def recalled(replies: pa.Table, form: Form) -> pa.Table:
    """Kept verdicts as they would be kept today: earlier ones do not say whether they contradict themselves.

    Of a model that thought they have the probability of its first thought, not of the label (see `content_tokens`):
    where a reply took more tokens than its label has bytes, and one to end it, the probability is unknown.

    Args:
        replies: rows of `REPLIES` from the ledger.
        form: that they were asked for in.
    """
    earlier = pc.and_(pc.is_valid(replies["probability"]), pc.is_null(replies["contradicted"]))
    if not pc.any(earlier).as_py():
        return replies
    before = pc.multiply(pc.subtract(replies["attempts"], 1), LABEL_TOKENS)
    own = pc.add(pc.add(pc.binary_length(replies["raw_reply"]), 1), before)
    thought = pc.and_(earlier, pc.fill_null(pc.greater(replies["completion_tokens"], own), False))
    if not form.is_object:
        for name in ("probability", "expected_grade"):
            replies = _with(replies, name, pc.if_else(thought, None, replies[name]))
    other = pc.not_equal(replies["relevant"], pc.greater_equal(replies["probability"], pa.scalar(EVEN)))
    return _with(replies, "contradicted", pc.if_else(earlier, other, replies["contradicted"]))


def _with(replies: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return replies.set_column(REPLIES.get_field_index(name), REPLIES.field(name), values)
