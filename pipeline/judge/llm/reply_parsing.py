"""What a chat completion says of a pair, or why it says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.doubtful_labels import TIED
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.budget import parse_count
from darklode.pipeline.base.remote.chat import incomplete_reason, is_truncated
from darklode.pipeline.judge.llm import lenient_parsing
from darklode.pipeline.judge.llm.logprobs import (
    CONTRADICTED,
    IMPOSSIBLE,
    NOT_FOUND,
    NOT_GIVEN,
    NoProbability,
    content_tokens,
    label_probabilities,
    start_of,
)
from darklode.pipeline.judge.llm.prompt import JudgePrompt
from darklode.pipeline.judge.llm.response_formats import LABEL_TOKENS, NoLabelFound, OutputFormat, RequestTemplate
from darklode.pipeline.judge.llm.served_model import other_model
from darklode.pipeline.judge.port import REPLIES, ReplyBatch

EVEN = np.float32(0.5)
"""At this probability relevant and not relevant are equally likely."""

UNRECORDED = "kept by an earlier version, which recorded no reason"

_DROPPED = "the reply is contradictory: "
"""So begins the error of a label that an earlier version dropped, whose log-probabilities were against it."""

_LONGEST_RAW = 4000
_ROUNDING = 1e-9


@dataclass
class LlmReading:
    """A verdict in the making.

    Attributes:
        values: columns of `REPLIES`; unknown ones are left out.
        refused: whether the pair is not to be asked again.
        thought: whether the model thought before it answered.
        cut_off: whether the limit on its tokens ended the reply.
        other_model: what is to be said of a reply in another model's name; empty where there is nothing.
    """

    values: dict[str, Any] = field(default_factory=dict)
    refused: bool = False
    thought: bool = False
    cut_off: bool = False
    other_model: str = ""

    @property
    def readable(self) -> bool:
        """Whether there is a label."""
        return "relevant" in self.values

    def add_usage(self, earlier: LlmReading) -> None:
        """Count an earlier attempt in: its tokens were paid for. A pair that was refused has no attempts left."""
        tokens = ("prompt_tokens", "cached_tokens", "completion_tokens")
        for name in tokens if self.refused else (*tokens, "attempts"):
            if earlier.values.get(name) is not None:
                self.values[name] = parse_count((self.values.get(name) or 0) + earlier.values[name])


def read(completion: Mapping[str, Any], template: RequestTemplate) -> LlmReading:
    """A reply's label, probabilities and usage; what cannot be read leaves the raw reply and the reason.

    The label is the one that the model wrote. Log-probabilities that are impossible, tied or against that label give no
    probability.

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
    thought = _thought_tokens(choice["message"], completion.get("usage"))
    values = {"attempts": 1} | _usage(completion)
    reading = LlmReading(values, thought=thought, cut_off=is_truncated(choice), other_model=other)
    try:
        _check(choice, content)
        label, reason = template.form.read(content, prompt.labels)
    except NoLabelFound as error:
        reading.values |= {"raw_reply": _raw(choice["message"]), "error": str(error)}
    else:
        reading.values |= {"raw_reply": content, "rationale": reason} | _label(label, prompt)
        try:
            shares = _shares(choice, label, template.form, prompt)
            reading.values |= _probability(label, shares, prompt)
        except NoProbability as error:
            reading.values |= {"no_probability": str(error)} | (
                {"contradicted": True} if str(error) == CONTRADICTED else {}
            )
    return reading


def _raw(message: Mapping[str, Any]) -> str | None:
    """What it said, or else why it refused."""
    content = message.get("content")
    raw = content if isinstance(content, str) else message.get("refusal")
    return str(raw)[:_LONGEST_RAW] if raw else None


def _thoughts(message: Mapping[str, Any]) -> str:
    """Those that the server keeps apart from the content, by either of the two names in use."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return reasoning if isinstance(reasoning, str) else ""


def _thought_tokens(message: Mapping[str, Any], usage: object) -> bool:
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    hidden = parse_count(details.get("reasoning_tokens")) if isinstance(details, dict) else None
    content = message.get("content")
    return bool(
        _thoughts(message).strip() or hidden or (isinstance(content, str) and lenient_parsing.thoughts_in(content))
    )


def _check(choice: Mapping[str, Any], content: object) -> None:
    if why := incomplete_reason(choice):
        raise NoLabelFound(why)
    if not isinstance(content, str) or not content.strip():
        raise NoLabelFound("the reply is empty")


def _shares(choice: Mapping[str, Any], label: str, form: OutputFormat, prompt: JudgePrompt) -> dict[str, float]:
    """Probabilities of the labels.

    Raises:
        NoProbability: the server gave none, none of the label's own tokens, or impossible ones.
    """
    logprobs, message = choice.get("logprobs"), choice["message"]
    if not form.logprobs or not isinstance(logprobs, dict) or not (tokens := logprobs.get("content")):
        raise NoProbability(NOT_GIVEN)
    try:
        own = content_tokens(tokens, message["content"], _thoughts(message))
        start = start_of(label, own, key=form.is_object)
        if start is None:
            raise NoProbability(NOT_FOUND)
        return label_probabilities(own, start, prompt.labels)
    except (KeyError, TypeError, AttributeError, ArithmeticError):
        raise NoProbability(IMPOSSIBLE) from None


def _label(label: str, prompt: JudgePrompt) -> dict[str, Any]:
    grade = prompt.head.labels[label]
    return {"relevant": grade >= prompt.head.relevant_from} | ({"grade": grade} if prompt.is_graded else {})


def _probability(label: str, shares: Mapping[str, float], prompt: JudgePrompt) -> dict[str, Any]:
    """Of being relevant, and of a graded prompt the mean grade.

    Raises:
        NoProbability: they tie, or favour another label than the one that was written.
    """
    grades, least = prompt.head.labels, prompt.head.relevant_from
    probability = min(1.0, sum(share for label_name, share in shares.items() if grades[label_name] >= least))
    if np.float32(probability) == EVEN:
        raise NoProbability(TIED)
    likelier_label = shares[label] < max(shares.values()) - _ROUNDING
    if likelier_label or (grades[label] >= least) != (probability > EVEN):
        raise NoProbability(CONTRADICTED)
    values = {"probability": probability, "contradicted": False}
    if prompt.is_graded:
        values["expected_grade"] = sum(share * grades[label_name] for label_name, share in shares.items())
    return values


def _usage(completion: Mapping[str, Any]) -> dict[str, Any]:
    usage = completion.get("usage")
    if not isinstance(usage, dict):
        return {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    counts = {
        "prompt_tokens": usage.get("prompt_tokens"),
        "cached_tokens": cached,
        "completion_tokens": usage.get("completion_tokens"),
    }
    return {name: tokens for name, value in counts.items() if (tokens := parse_count(value)) is not None}


def reply_batch(readings: Iterable[tuple[int, LlmReading]]) -> ReplyBatch:
    """Rows and their readings as a table."""
    buffered = list(readings)
    columns = [
        pa.array([reading.values.get(name) for _, reading in buffered], REPLIES.field(name).type)
        for name in REPLIES.names
    ]
    return ReplyBatch(np.array([row for row, _ in buffered], np.int64), pa.Table.from_arrays(columns, schema=REPLIES))


def recall_replies(replies: pa.Table, template: RequestTemplate) -> pa.Table:
    """Kept verdicts as they would be kept today.

    A label that an earlier version dropped as contradictory stands, and is contradicted.

    A probability that ties or is on the other side of one half than the label is unknown, as in `read`. So is that of a
    model that thought, where an earlier version took it from the first thought, not from the label (see
    `content_tokens`): there a reply took more tokens than its label has bytes, and one to end it.

    Args:
        replies: rows of `REPLIES` from the ledger.
        template: the judge that gave them.
    """
    form, replies = template.form, _with_dropped_labels(replies, template)
    has_probability = pc.is_valid(replies["probability"])
    earlier = pc.and_(has_probability, pc.is_null(replies["contradicted"]))
    before = pc.multiply(pc.subtract(replies["attempts"], 1), LABEL_TOKENS)
    own = pc.add(pc.add(pc.binary_length(replies["raw_reply"]), 1), before)
    thought = pc.and_(earlier, pc.fill_null(pc.greater(replies["completion_tokens"], own), False))
    if form.is_object:  # there the label was found behind the thoughts
        thought = pc.and_(thought, False)
    tied = pc.fill_null(pc.equal(replies["probability"], pa.scalar(EVEN)), False)
    likely = pc.greater(replies["probability"], pa.scalar(EVEN))
    other = pc.and_not(pc.fill_null(pc.not_equal(replies["relevant"], likely), False), pc.or_(thought, tied))
    for name in ("probability", "expected_grade"):
        replies = _with_column(replies, name, pc.if_else(pc.or_(pc.or_(thought, tied), other), None, replies[name]))
    contradicted = pc.if_else(pc.or_(thought, tied), None, pc.if_else(has_probability, other, replies["contradicted"]))
    replies = _with_column(replies, "contradicted", contradicted)
    missing = pc.and_(pc.is_valid(replies["relevant"]), pc.is_null(replies["probability"]))
    unrecorded = pc.and_(missing, pc.is_null(replies["no_probability"]))
    reason = pc.case_when(
        pc.make_struct(thought, tied, pc.fill_null(contradicted, False)),
        NOT_FOUND,
        TIED,
        CONTRADICTED,
        UNRECORDED if form.logprobs else NOT_GIVEN,
    )
    return _with_column(replies, "no_probability", pc.if_else(unrecorded, reason, replies["no_probability"]))


def _with_dropped_labels(replies: pa.Table, template: RequestTemplate) -> pa.Table:
    dropped = pc.fill_null(pc.starts_with(replies["error"], _DROPPED), False).to_numpy()
    if not dropped.any():
        return replies
    labelled = [_with_label(row, template) for row in replies.filter(pa.array(dropped)).to_pylist()]
    rows = np.arange(replies.num_rows)
    rows[dropped] = replies.num_rows + np.arange(len(labelled))
    return pa.concat_tables([replies, pa.Table.from_pylist(labelled, REPLIES)]).take(pa.array(rows))


def _with_label(row: dict[str, Any], template: RequestTemplate) -> dict[str, Any]:
    """A row of `REPLIES` with the label of its raw reply, which may have been cut; as it is where none can be read."""
    try:
        label, reason = template.form.read(row["raw_reply"] or "", template.prompt.labels)
    except NoLabelFound:
        return row
    return row | {"error": None, "rationale": reason, "contradicted": True} | _label(label, template.prompt)


def _with_column(replies: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return replies.set_column(REPLIES.get_field_index(name), REPLIES.field(name), values)
