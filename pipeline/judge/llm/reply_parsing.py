"""Read the verdict from a chat completion, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.doubtful_labels import TIED_REASON
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.budget import parse_count
from darklode.pipeline.base.remote.chat import incomplete_reason, is_truncated
from darklode.pipeline.judge.llm import lenient_parsing
from darklode.pipeline.judge.llm.logprobs import (
    LABEL_CONTRADICTED,
    LABEL_NOT_COVERED,
    LOGPROBS_IMPOSSIBLE,
    LOGPROBS_MISSING,
    NoProbability,
    content_tokens,
    label_probabilities,
    start_of,
)
from darklode.pipeline.judge.llm.prompt import JudgePrompt
from darklode.pipeline.judge.llm.response_formats import LABEL_TOKENS, NoLabelFound, OutputFormat, RequestTemplate
from darklode.pipeline.judge.llm.served_model import other_model
from darklode.pipeline.judge.port import REPLIES, ReplyBatch

EVEN_ODDS = np.float32(0.5)
"""Probability at which relevant and not relevant are equally likely."""

UNRECORDED_REASON = "judged by an earlier version, which recorded no reason"

_DROPPED_LABEL_PREFIX = "the reply is contradictory: "
"""Prefix of the error with which an earlier version dropped labels that contradict their log-probabilities."""

_MAX_RAW_CHARACTERS = 4000  # of an unreadable reply that the ledger stores
_EQUAL_PROBABILITY_TOLERANCE = 1e-9  # difference of probabilities below which they count as equal


@dataclass
class LlmReading:
    """What was read from a reply.

    Attributes:
        values: columns of `REPLIES`; unknown ones are missing.
        is_refused: the pair must not be requested again.
        has_reasoning: the model produced reasoning tokens.
        is_truncated: the reply was truncated at max_tokens.
        other_model: warning that another model's name was returned; empty if not.
    """

    values: dict[str, Any] = field(default_factory=dict)
    is_refused: bool = False
    has_reasoning: bool = False
    is_truncated: bool = False
    other_model: str = ""

    @property
    def is_readable(self) -> bool:
        """Whether there is a label."""
        return "relevant" in self.values

    def add_usage(self, earlier: LlmReading) -> None:
        """Add the usage of an earlier attempt. Attempts of a refused pair are not added: it is not requested again."""
        tokens = ("prompt_tokens", "cached_tokens", "completion_tokens")
        for name in tokens if self.is_refused else (*tokens, "attempts"):
            if earlier.values.get(name) is not None:
                self.values[name] = parse_count((self.values.get(name) or 0) + earlier.values[name])


def read(completion: Mapping[str, Any], template: RequestTemplate) -> LlmReading:
    """Read a reply's label, probability and usage; an unreadable reply gives the raw text and an error.

    The label is the one that the model wrote. Log-probabilities that are impossible, tied, or contradict the label give
    no probability.

    Args:
        completion: has at least one choice with a message (see `chat.completion_of`).
        template: the judge.

    Raises:
        DarklodeError: the reply names another model, and `judge.trust_model_name` is not set.
    """
    model_warning = other_model(completion, template.settings)
    if model_warning and not template.settings.trust_model_name:
        raise DarklodeError(model_warning)
    choice = completion["choices"][0]
    prompt = template.prompt
    content = choice["message"].get("content")
    has_reasoning = _has_reasoning(choice["message"], completion.get("usage"))
    values = {"attempts": 1} | _usage_columns(completion)
    reading = LlmReading(
        values, has_reasoning=has_reasoning, is_truncated=is_truncated(choice), other_model=model_warning
    )
    try:
        _check_complete(choice, content)
        label, reason = template.form.read(content, prompt.labels)
    except NoLabelFound as error:
        reading.values |= {"raw_reply": _raw_reply(choice["message"]), "error": str(error)}
    else:
        reading.values |= {"raw_reply": content, "rationale": reason} | _label_columns(label, prompt)
        try:
            probabilities = _label_probabilities(choice, label, template.form, prompt)
            reading.values |= _probability_columns(label, probabilities, prompt)
        except NoProbability as error:
            reading.values["no_probability"] = str(error)
            if str(error) == LABEL_CONTRADICTED:
                reading.values["contradicted"] = True
    return reading


def _raw_reply(message: Mapping[str, Any]) -> str | None:
    """Return the start of the content, or else of the refusal; None if there is neither."""
    content = message.get("content")
    raw = content if isinstance(content, str) and content else message.get("refusal")
    return str(raw)[:_MAX_RAW_CHARACTERS] if raw else None


def _thoughts(message: Mapping[str, Any]) -> str:
    """Return the reasoning that the server returns separately, under either of the two common field names."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return reasoning if isinstance(reasoning, str) else ""


def _has_reasoning(message: Mapping[str, Any], usage: object) -> bool:
    """Whether the model reasoned: separately, as reported in the usage, or at the start of the content."""
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    hidden = parse_count(details.get("reasoning_tokens")) if isinstance(details, dict) else None
    content = message.get("content")
    return bool(
        _thoughts(message).strip() or hidden or (isinstance(content, str) and lenient_parsing.thoughts_in(content))
    )


def _check_complete(choice: Mapping[str, Any], content: object) -> None:
    """Raise `NoLabelFound` if the reply is incomplete or empty."""
    if why := incomplete_reason(choice):
        raise NoLabelFound(why)
    if not isinstance(content, str) or not content.strip():
        raise NoLabelFound("the reply is empty")


def _label_probabilities(
    choice: Mapping[str, Any], label: str, form: OutputFormat, prompt: JudgePrompt
) -> dict[str, float]:
    """Compute the probabilities of the labels from the reply's log-probabilities.

    Raises:
        NoProbability: log-probabilities are missing, do not cover the label, or are impossible.
    """
    logprobs = choice.get("logprobs")
    message = choice["message"]
    if not form.logprobs or not isinstance(logprobs, dict) or not (tokens := logprobs.get("content")):
        raise NoProbability(LOGPROBS_MISSING)
    try:
        reply_tokens = content_tokens(tokens, message["content"], _thoughts(message))
        start = start_of(label, reply_tokens, key=form.is_object)
        if start is None:
            raise NoProbability(LABEL_NOT_COVERED)
        return label_probabilities(reply_tokens, start, prompt.labels)
    except (KeyError, TypeError, AttributeError, ArithmeticError):
        raise NoProbability(LOGPROBS_IMPOSSIBLE) from None


def _label_columns(label: str, prompt: JudgePrompt) -> dict[str, Any]:
    """Convert a label to the columns `relevant` and, for a graded prompt, `grade`."""
    grade = prompt.head.labels[label]
    return {"relevant": grade >= prompt.head.relevant_from} | ({"grade": grade} if prompt.is_graded else {})


def _probability_columns(label: str, shares: Mapping[str, float], prompt: JudgePrompt) -> dict[str, Any]:
    """Compute the probability of relevance and, for a graded prompt, the expected grade.

    Raises:
        NoProbability: the probabilities tie, or favor another label than the one written.
    """
    grades = prompt.head.labels
    min_relevant = prompt.head.relevant_from
    probability = min(1.0, sum(share for label_name, share in shares.items() if grades[label_name] >= min_relevant))
    if np.float32(probability) == EVEN_ODDS:
        raise NoProbability(TIED_REASON)
    is_another_likelier = shares[label] < max(shares.values()) - _EQUAL_PROBABILITY_TOLERANCE
    if is_another_likelier or (grades[label] >= min_relevant) != (probability > EVEN_ODDS):
        raise NoProbability(LABEL_CONTRADICTED)
    values = {"probability": probability, "contradicted": False}
    if prompt.is_graded:
        values["expected_grade"] = sum(share * grades[label_name] for label_name, share in shares.items())
    return values


def _usage_columns(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Read the token counts that the server reported; counts that are not valid are left out."""
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
    """Convert pairs of row number and reading to a batch with the columns of `REPLIES`."""
    buffered = list(readings)
    columns = [
        pa.array([reading.values.get(name) for _, reading in buffered], REPLIES.field(name).type)
        for name in REPLIES.names
    ]
    return ReplyBatch(np.array([row for row, _ in buffered], np.int64), pa.Table.from_arrays(columns, schema=REPLIES))


def recall_replies(replies: pa.Table, template: RequestTemplate) -> pa.Table:
    """Apply the current rules to verdicts from the ledger.

    A label that an earlier version dropped as contradictory is restored, and marked as contradicted. A probability that
    ties or contradicts the label is removed, as in `read`. So is the probability of a reasoning model, if an earlier
    version took it from the first reasoning token instead of the label (see `content_tokens`); such a reply has more
    tokens than its label has bytes plus one end token.

    Args:
        replies: verdicts from the ledger, with the columns of `REPLIES`.
        template: the judge that gave them.
    """
    form = template.form
    replies = _with_dropped_labels(replies, template)
    has_probability = pc.is_valid(replies["probability"])
    is_earlier_version = pc.and_(has_probability, pc.is_null(replies["contradicted"]))
    tokens_before = pc.multiply(pc.subtract(replies["attempts"], 1), LABEL_TOKENS)
    max_tokens = pc.add(pc.add(pc.binary_length(replies["raw_reply"]), 1), tokens_before)
    is_from_reasoning = pc.and_(
        is_earlier_version, pc.fill_null(pc.greater(replies["completion_tokens"], max_tokens), False)
    )
    if form.is_object:  # in JSON the label was found after the reasoning
        is_from_reasoning = pc.and_(is_from_reasoning, False)
    is_tied = pc.fill_null(pc.equal(replies["probability"], pa.scalar(EVEN_ODDS)), False)
    is_likely = pc.greater(replies["probability"], pa.scalar(EVEN_ODDS))
    is_contradicted = pc.and_not(
        pc.fill_null(pc.not_equal(replies["relevant"], is_likely), False), pc.or_(is_from_reasoning, is_tied)
    )
    for name in ("probability", "expected_grade"):
        replies = _with_column(
            replies, name, pc.if_else(pc.or_(pc.or_(is_from_reasoning, is_tied), is_contradicted), None, replies[name])
        )
    contradicted = pc.if_else(
        pc.or_(is_from_reasoning, is_tied), None, pc.if_else(has_probability, is_contradicted, replies["contradicted"])
    )
    replies = _with_column(replies, "contradicted", contradicted)
    lacks_probability = pc.and_(pc.is_valid(replies["relevant"]), pc.is_null(replies["probability"]))
    unrecorded = pc.and_(lacks_probability, pc.is_null(replies["no_probability"]))
    reason = pc.case_when(
        pc.make_struct(is_from_reasoning, is_tied, pc.fill_null(contradicted, False)),
        LABEL_NOT_COVERED,
        TIED_REASON,
        LABEL_CONTRADICTED,
        UNRECORDED_REASON if form.logprobs else LOGPROBS_MISSING,
    )
    return _with_column(replies, "no_probability", pc.if_else(unrecorded, reason, replies["no_probability"]))


def _with_dropped_labels(replies: pa.Table, template: RequestTemplate) -> pa.Table:
    """Restore the labels that an earlier version dropped as contradictory, where the raw reply is readable."""
    dropped = pc.fill_null(pc.starts_with(replies["error"], _DROPPED_LABEL_PREFIX), False).to_numpy()
    if not dropped.any():
        return replies
    labelled = [_with_label(row, template) for row in replies.filter(pa.array(dropped)).to_pylist()]
    rows = np.arange(replies.num_rows)
    rows[dropped] = replies.num_rows + np.arange(len(labelled))
    return pa.concat_tables([replies, pa.Table.from_pylist(labelled, REPLIES)]).take(pa.array(rows))


def _with_label(row: dict[str, Any], template: RequestTemplate) -> dict[str, Any]:
    """Return a row of `REPLIES` with the label read from its raw reply; unchanged if it is unreadable (raw replies may
    be cut).
    """
    try:
        label, reason = template.form.read(row["raw_reply"] or "", template.prompt.labels)
    except NoLabelFound:
        return row
    return row | {"error": None, "rationale": reason, "contradicted": True} | _label_columns(label, template.prompt)


def _with_column(replies: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    """Replace a column of `REPLIES`."""
    return replies.set_column(REPLIES.get_field_index(name), REPLIES.field(name), values)
