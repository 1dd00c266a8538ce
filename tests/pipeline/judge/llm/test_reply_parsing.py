"""From a chat completion to a verdict, or to none."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.base.doubtful_labels import TIED_REASON
from darklode.pipeline.base.remote.call_errors import BadReply
from darklode.pipeline.base.remote.chat import completion_of
from darklode.pipeline.judge.llm import reply_parsing as reading
from darklode.pipeline.judge.llm.logprobs import (
    LABEL_CONTRADICTED,
    LABEL_NOT_COVERED,
    LOGPROBS_IMPOSSIBLE,
    LOGPROBS_MISSING,
    NO_ALTERNATIVES,
)
from darklode.pipeline.judge.llm.prompt import JudgePrompt, load_prompt
from darklode.pipeline.judge.llm.reply_parsing import UNRECORDED_REASON, LlmReading, recall_replies, reply_batch
from darklode.pipeline.judge.llm.response_formats import OutputFormat, RequestTemplate
from darklode.pipeline.judge.llm.settings import LlmSettings
from darklode.pipeline.judge.port import PAIRS, REPLIES, Judge
from darklode.pipeline.judge.threshold import Thresholded
from helpers.token_rows import plain, token

BINARY, GRADED = load_prompt("binary"), load_prompt("graded")


def read(found: dict[str, Any], form: OutputFormat, prompt: JudgePrompt, **changed: Any) -> LlmReading:
    settings = LlmSettings(model="m", base_url="http://127.0.0.1:1/v1", **changed)
    return reading.read(found, RequestTemplate(settings, prompt, form))


def rows_of(*readings: LlmReading) -> list[dict[str, Any]]:
    return reply_batch(enumerate(readings)).replies.to_pylist()


class Fixed(Judge):
    """Gives the same replies whatever it is asked."""

    judge_id = "fixed"

    def __init__(self, replies: pa.Table) -> None:
        self._replies = replies

    async def judge(self, pairs: pa.Table) -> pa.Table:
        return self._replies


def completion(content: object, tokens: list[dict[str, Any]] | None = None, **choice: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"} | choice
    if tokens is not None:
        said["logprobs"] = {"content": tokens}
    return {"choices": [said], "usage": {"prompt_tokens": 90, "completion_tokens": 1}}


def test_a_model_that_thinks_has_its_labels_probability_from_the_label() -> None:
    thoughts = [token("Yes", Yes=0.9, no=0.1), *plain(" it", " seems", "</think>", "\n\n")]
    own = [token("no", no=0.8, yes=0.2), *plain("<|im_end|>")]
    message = {"content": "no", "reasoning_content": "Yes it seems"}
    form = OutputFormat("choice", True)
    reading = read(completion("no", [*thoughts, *own], message=message), form, BINARY)
    assert (reading.values["relevant"], reading.has_reasoning) == (False, True)
    assert reading.values["probability"] == pytest.approx(0.2)
    hidden = read(completion("no", thoughts, message=message), form, BINARY)
    assert (hidden.values["relevant"], "probability" in hidden.values) == (False, False)


def test_thoughts_within_the_content_are_left_out() -> None:
    content = "<think>\nIt says yes.\n</think>\n\nno"
    tokens = [*plain("<think>", "\nIt says", " yes", ".\n", "</think>", "\n\n"), token("no", no=0.9, yes=0.1)]
    reading = read(completion(content, tokens), OutputFormat("text", True), BINARY)
    assert (reading.values["relevant"], reading.has_reasoning) == (False, True)
    assert reading.values["probability"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("message", "usage", "thought"),
    [
        ({"content": "no"}, {}, False),
        ({"content": "no", "reasoning_content": None}, {"completion_tokens_details": None}, False),
        ({"content": "no", "reasoning": "Hm."}, {}, True),
        ({"content": "Hm.</think>no"}, {}, True),
        ({"content": "no"}, {"completion_tokens_details": {"reasoning_tokens": 64}}, True),
        ({"content": "no"}, {"completion_tokens_details": {"reasoning_tokens": 0}}, False),
    ],
)
def test_a_model_that_thinks_is_known_by_its_reply(message: object, usage: object, thought: bool) -> None:
    said = completion("", message=message) | {"usage": usage}
    assert read(said, OutputFormat("text", False), BINARY).has_reasoning is thought


def test_a_label_with_its_probability() -> None:
    reading = read(completion("yes", [token("yes", yes=0.6, no=0.2)]), OutputFormat("choice", True), BINARY)
    assert reading.values["relevant"] is True
    assert reading.values["probability"] == pytest.approx(0.75)
    assert "grade" not in reading.values
    assert (reading.values["prompt_tokens"], reading.values["attempts"]) == (90, 1)


def test_a_grade_with_its_expectation() -> None:
    shares = {"0": 0.2, "1": 0.4, "2": 0.3, "3": 0.1}
    said = read(completion("1", [token("1", **shares)]), OutputFormat("choice", True), GRADED).values
    assert (said["grade"], said["relevant"]) == (1, False)
    assert said["probability"] == pytest.approx(0.4)
    assert said["expected_grade"] == pytest.approx(0.4 + 0.6 + 0.3)


def test_without_log_probabilities_the_probability_is_unknown() -> None:
    for form in (OutputFormat("choice", True), OutputFormat("choice", False)):
        said = read(completion("no"), form, BINARY).values
        assert said["relevant"] is False
        assert "probability" not in said


@pytest.mark.parametrize(
    ("label", "shares", "probability", "contradicted"),
    [
        *(("no", {"no": 0.3, "yes": 0.7}, None, True), ("no", {"no": 0.7, "yes": 0.3}, 0.3, False)),
        *(("yes", {"yes": 0.3, "no": 0.7}, None, True), ("yes", {"yes": 0.51, "no": 0.49}, 0.51, False)),
        *(("yes", {"yes": 0.5, "no": 0.5}, None, None), ("no", {"no": 0.5, "yes": 0.5}, None, None)),
        ("no", {"no": 0.02, "yes": 0.98}, None, True),
    ],
)
def test_the_written_label_stands_against_its_log_probabilities(
    label: str, shares: dict[str, float], probability: float | None, contradicted: bool | None
) -> None:
    (row,) = rows_of(read(completion(label, [token(label, **shares)]), OutputFormat("choice", True), BINARY))
    assert (row["relevant"], row["contradicted"]) == (label == "yes", contradicted)
    assert row["probability"] == (None if probability is None else pytest.approx(probability))
    assert (row["no_probability"] is None) == (probability is not None)


@pytest.mark.parametrize(
    ("label", "shares"),
    [
        ("1", {"0": 0.05, "1": 0.4, "2": 0.3, "3": 0.25}),  # relevant is likelier, no single grade is
        ("3", {"0": 0.05, "1": 0.05, "2": 0.5, "3": 0.4}),  # the same side, another grade
    ],
)
def test_a_grade_that_is_contradicted_stands(label: str, shares: dict[str, float]) -> None:
    (row,) = rows_of(read(completion(label, [token(label, **shares)]), OutputFormat("choice", True), GRADED))
    assert (row["grade"], row["relevant"], row["contradicted"]) == (int(label), int(label) > 1, True)
    assert (row["probability"], row["expected_grade"], row["no_probability"]) == (None, None, LABEL_CONTRADICTED)


def logprobs(label: str, chosen: Any, **others: Any) -> dict[str, Any]:
    """The token of a label with log-probabilities as they are."""
    top = [{"token": name, "logprob": value} for name, value in {label: chosen, **others}.items()]
    return {"token": label, "logprob": chosen, "top_logprobs": top}


@pytest.mark.parametrize("label", ["yes", "no"])
@pytest.mark.parametrize(
    ("chosen", "other", "why"),
    [
        (0.0, 0.0, LOGPROBS_IMPOSSIBLE),
        (0.9, 0.1, LOGPROBS_IMPOSSIBLE),
        (0.5, 0.5, LOGPROBS_IMPOSSIBLE),
        (-0.1, -0.2, LOGPROBS_IMPOSSIBLE),
        (-0.7, 0.01, LOGPROBS_IMPOSSIBLE),
        (math.nan, -1.0, LOGPROBS_IMPOSSIBLE),
        (-0.3, math.nan, LOGPROBS_IMPOSSIBLE),
        (math.inf, -1.0, LOGPROBS_IMPOSSIBLE),
        (-math.inf, -math.inf, LOGPROBS_IMPOSSIBLE),
        ("-0.1", -3.0, LOGPROBS_IMPOSSIBLE),
        (10**400, -3.0, LOGPROBS_IMPOSSIBLE),
        (math.log(0.5), math.log(0.5), TIED_REASON),
        (math.log(0.2), math.log(0.7), LABEL_CONTRADICTED),
    ],
)
def test_log_probabilities_that_cannot_be_are_dropped(label: str, chosen: Any, other: Any, why: str) -> None:
    tokens = [logprobs(label, chosen, **{"no" if label == "yes" else "yes": other})]
    (row,) = rows_of(read(completion(label, tokens), OutputFormat("choice", True), BINARY))
    assert (row["relevant"], row["probability"], row["no_probability"]) == (label == "yes", None, why)


@pytest.mark.parametrize(("chosen", "other"), [(0.0, -20.0), (0.0005, -9999.0), (-0.002, -6.0)])
def test_rounded_log_probabilities_are_taken(chosen: float, other: float) -> None:
    (row,) = rows_of(read(completion("no", [logprobs("no", chosen, yes=other)]), OutputFormat("choice", True), BINARY))
    assert (row["relevant"], row["no_probability"]) == (False, None)
    assert row["probability"] == pytest.approx(math.exp(other), abs=0.001)


def test_the_written_token_alone_has_no_probability() -> None:
    (row,) = rows_of(read(completion("no", plain("no")), OutputFormat("choice", True), BINARY))
    assert (row["relevant"], row["probability"], row["no_probability"]) == (False, None, NO_ALTERNATIVES)


@given(
    label=st.sampled_from(["yes", "no"]),
    values=st.lists(st.floats() | st.integers(), min_size=2, max_size=2),
    threshold=st.just(0.5),
)
def test_no_log_probability_turns_a_label(label: str, values: list[float], threshold: float) -> None:
    tokens = [logprobs(label, values[0], **{"no" if label == "yes" else "yes": values[1]})]
    reading = read(completion(label, tokens), OutputFormat("choice", True), BINARY)
    source = Fixed(reply_batch([(0, reading)]).replies)
    (row,) = asyncio.run(Thresholded(source, threshold).judge(PAIRS.empty_table())).to_pylist()
    assert row["relevant"] == (label == "yes")


def test_without_a_probability_nothing_is_contradicted() -> None:
    assert "contradicted" not in read(completion("no"), OutputFormat("choice", True), BINARY).values


KEPT = pa.Table.from_pylist(
    [
        {"relevant": False, "probability": 0.75, "raw_reply": "no", "completion_tokens": 2, "attempts": 1},
        {"relevant": False, "probability": 0.25, "raw_reply": "no", "completion_tokens": 2, "attempts": 1},
        {"relevant": False, "probability": 0.75, "raw_reply": "no", "completion_tokens": 200, "attempts": 1},
        {"relevant": True, "probability": 0.75, "raw_reply": "yes", "completion_tokens": 30, "attempts": 2},
        {"relevant": True, "probability": 0.75, "raw_reply": "yes", "completion_tokens": None, "attempts": 1},
        {"relevant": True, "probability": None, "raw_reply": "yes", "completion_tokens": 9, "attempts": 1},
        {"relevant": None, "error": "empty", "attempts": 1},
        {"relevant": False, "probability": 0.75, "contradicted": True, "raw_reply": "no", "completion_tokens": 200}
        | {"attempts": 1},
        {"relevant": False, "probability": 0.5, "raw_reply": "no", "completion_tokens": 1, "attempts": 1},
        {
            "relevant": True,
            "contradicted": True,
            "no_probability": LABEL_CONTRADICTED,
            "raw_reply": "yes",
            "attempts": 1,
        },
        {"relevant": True, "no_probability": NO_ALTERNATIVES, "raw_reply": "yes", "attempts": 1},
    ],
    REPLIES,
)


def brought_back(kept: pa.Table, form: OutputFormat, prompt: JudgePrompt = BINARY) -> pa.Table:
    return recall_replies(kept, RequestTemplate(LlmSettings(model="m", base_url="http://127.0.0.1:1/v1"), prompt, form))


def test_what_earlier_versions_kept_is_read_as_it_would_be_kept_today() -> None:
    found = brought_back(KEPT, OutputFormat("choice", True))
    assert found.schema.equals(REPLIES)
    contradicted = [True, False, None, False, False, None, None, True, None, True, None]
    assert found["contradicted"].to_pylist() == contradicted
    assert found["probability"].to_pylist() == [None, 0.25, None, 0.75, 0.75, *[None] * 6]
    reasons = [
        LABEL_CONTRADICTED,
        None,
        LABEL_NOT_COVERED,
        None,
        None,
        UNRECORDED_REASON,
        None,
        LABEL_CONTRADICTED,
        TIED_REASON,
    ]
    assert found["no_probability"].to_pylist() == [*reasons, LABEL_CONTRADICTED, NO_ALTERNATIVES]
    changed = ["contradicted", "probability", "no_probability"]
    assert found.drop_columns(changed).equals(KEPT.drop_columns(changed)), "no label is touched"
    within_json = brought_back(KEPT, OutputFormat("json", True))
    assert within_json["no_probability"][2].as_py() == LABEL_CONTRADICTED, (
        "there the label was found behind the thoughts"
    )
    assert brought_back(KEPT, OutputFormat("choice", False))["no_probability"][5].as_py() == LOGPROBS_MISSING
    assert brought_back(found, OutputFormat("choice", True)).equals(found)
    assert brought_back(KEPT.slice(0, 0), OutputFormat("choice", True)).num_rows == 0


def test_a_label_that_an_earlier_version_dropped_stands() -> None:
    """What `max_disagreement` dropped, between verdicts that stay as they are."""
    error = "the reply is contradictory: it gives its own label a probability of 0.031"
    said: list[dict[str, Any]] = [
        {"relevant": True, "probability": 0.75, "contradicted": False, "raw_reply": "yes"},
        {"error": error, "raw_reply": "no", "prompt_tokens": 7, "attempts": 3},
        {"error": "the reply is empty"},
        {"error": error, "raw_reply": "yes"},
        {"error": error, "raw_reply": '{"label": "ye'},
    ]
    kept = pa.Table.from_pylist(said, REPLIES)
    found = brought_back(kept, OutputFormat("choice", True))
    assert found.schema.equals(REPLIES)
    stands = {"error": None, "contradicted": True, "no_probability": LABEL_CONTRADICTED}
    before = kept.to_pylist()
    changed = {1: stands | {"relevant": False}, 3: stands | {"relevant": True}}
    assert found.to_pylist() == [row | changed.get(number, {}) for number, row in enumerate(before)]
    one = {"error": error, "raw_reply": '{"rationale": "so", "label": "1"}'}
    (row,) = brought_back(pa.Table.from_pylist([one], REPLIES), OutputFormat("json", True, True), GRADED).to_pylist()
    assert (row["relevant"], row["grade"], row["rationale"], row["contradicted"]) == (False, 1, "so", True)


def test_a_rationale_is_kept() -> None:
    content = '{"rationale": "It says \\"no\\".", "label": "yes"}'
    said = read(completion(content), OutputFormat("json", False, rationale=True), BINARY).values
    assert (said["relevant"], said["rationale"]) == (True, 'It says "no".')


@pytest.mark.parametrize(
    ("form", "content", "why"),
    [
        ("text", "I would answer no", "not a label"),
        ("text", "see RFC 2119", "not a label"),
        ("text", "yes\nno", "not a label"),
        ("text", "yes?", "not a label"),
        ("text", "yes no", "not a label"),
        ("text", "<think>no</think>", "not a label"),
        ("text", "<think>Hm. yes", "not a label"),
        ("text", "", "empty"),
        ("text", None, "empty"),
        ("text", ["yes"], "empty"),
        ("choice", "not no", "not a label"),
        ("json", "yes", "not JSON"),
        ("json", '"yes"', "not a JSON object"),
        ("json", '{"label": "maybe"}', "no valid label"),
        ("json", '{"label": ["yes"]}', "no valid label"),
        ("json", '{"Label": "yes"}', "not a JSON object with label"),
        ("json", '{"label": true}', "no valid label"),
        ("json", '{"label": ' * 10_000, "nested too deeply (RecursionError)"),
        ("json", '{"label": "yes", "label": "no"}', "contradictory"),
        ("json", '{"label": "yes"} {"label": "no"}', "not JSON"),
        ("json+rationale", '{"rationale": 3, "label": "yes"}', "no valid label"),
        ("json+rationale", '{"label": "yes"}', "not a JSON object with label and rationale"),
    ],
)
def test_what_has_another_form_is_unreadable(form: str, content: object, why: str) -> None:
    mode, _, more = form.partition("+")
    reading = read(completion(content), OutputFormat(mode, False, rationale=bool(more)), BINARY)
    assert not reading.is_readable
    assert why in reading.values["error"]
    assert reading.values["raw_reply"] == (content[:4000] or None if isinstance(content, str) else None)


@pytest.mark.parametrize("content", ["3 or 2", "Grade: 3", "3/3", "RFC 2119", "two"])
def test_no_grade_is_fished_out_of_prose(content: str) -> None:
    assert not read(completion(content), OutputFormat("text", False), GRADED).is_readable


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"finish_reason": "length"}, "cut off at the token limit"),
        ({"finish_reason": "content_filter"}, "content filter"),
        ({"message": {"content": None, "refusal": "I can't help with that."}}, "refused"),
        ({"message": {"content": "", "refusal": "I can't help with that."}}, "refused"),
    ],
)
def test_truncated_and_refused_replies_are_null(choice: dict[str, Any], why: str) -> None:
    reading = read(completion("yes", **choice), OutputFormat("choice", True), BINARY)
    assert not reading.is_readable
    assert why in reading.values["error"]
    assert reading.values["raw_reply"]


@pytest.mark.parametrize("ended", ["stop", "STOP", "eos", "eos_token", "stop_sequence", "end_turn", "COMPLETE"])
def test_a_reply_is_read_where_the_server_says_that_it_is_complete(ended: str) -> None:
    assert read(completion("yes", finish_reason=ended), OutputFormat("choice", True), BINARY).values["relevant"] is True


UNFINISHED = [
    "tool_calls",
    "function_call",
    "insufficient_system_resource",
    "length",
    "MAX_TOKENS",
    "",
    None,
    1,
    ["stop"],
]


@pytest.mark.parametrize("ended", [*UNFINISHED, "content_filter", "SAFETY", "sensitive", "unknown", {"stop": "stop"}])
def test_a_reply_that_may_not_be_complete_is_null(ended: object) -> None:
    reading = read(completion("yes", finish_reason=ended), OutputFormat("choice", True), BINARY)
    assert not reading.is_readable
    assert any(
        why in reading.values["error"] for why in (repr(str(ended)), "no finish", "token limit", "content filter")
    )
    assert reading.values["raw_reply"] == "yes"


@pytest.mark.parametrize("broken", [{"content": [{}]}, {"content": "x"}, {"content": [None]}, [], "x"])
def test_log_probabilities_of_another_shape_are_none(broken: object) -> None:
    assert "probability" not in read(completion("yes", logprobs=broken), OutputFormat("choice", True), BINARY).values


OTHER_USAGE: list[object] = [
    *(None, [], {"prompt_tokens": "many"}, {"prompt_tokens_details": None}, {"prompt_tokens": 2**31}),
    *({"prompt_tokens": -1}, {"prompt_tokens": True}, {"prompt_tokens": 9.0}, {"prompt_tokens": 10**400}),
]


@pytest.mark.parametrize("usage", OTHER_USAGE)
def test_usage_of_another_shape_is_unknown(usage: object) -> None:
    said = read(completion("yes") | {"usage": usage}, OutputFormat("choice", False), BINARY).values
    assert "prompt_tokens" not in said


def test_more_tokens_than_there_can_be_are_unknown() -> None:
    first, second = (read(completion(said), OutputFormat("text", False), BINARY) for said in ("maybe", "no"))
    first.values["prompt_tokens"] = 2**31 - 1
    second.add_usage(first)
    (row,) = reply_batch([(0, second)]).replies.to_pylist()
    assert (row["prompt_tokens"], row["completion_tokens"]) == (None, 2)


def test_earlier_attempts_are_paid_for_too() -> None:
    first = read(completion("maybe"), OutputFormat("text", False), BINARY)
    second = read(completion("no"), OutputFormat("text", False), BINARY)
    second.add_usage(first)
    (row,) = reply_batch([(7, second)]).replies.to_pylist()
    assert (row["prompt_tokens"], row["completion_tokens"], row["attempts"]) == (180, 2, 2)
    assert row["error"] is None


def test_texts_that_no_file_can_hold_are_mended() -> None:
    content = '{"rationale": "so \\ud800 it is", "label": "yes", "\udfff": 1}'
    said = read(completion_of(completion(content)), OutputFormat("json", False, rationale=True), BINARY)
    (row,) = reply_batch([(0, said)]).replies.to_pylist()
    assert (row["relevant"], row["rationale"]) == (True, "so \ufffd it is")
    assert '"\ufffd": 1' in row["raw_reply"]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(codec=None), max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)
LABELLED = st.sampled_from(["yes", '{"label": "no"}', "<think>", "</think>", "\ud800", '{"label": {}}'])
TOKENS = st.fixed_dictionaries(
    {}, optional={"token": LABELLED | JSON, "logprob": JSON, "top_logprobs": st.lists(JSON, max_size=2) | JSON}
)
MESSAGES = st.fixed_dictionaries(
    {}, optional={"content": LABELLED | JSON, "refusal": JSON, "reasoning": JSON, "reasoning_content": LABELLED | JSON}
)
CHOICES = st.fixed_dictionaries(
    {"message": MESSAGES},
    optional={
        "index": JSON,
        "finish_reason": JSON,
        "logprobs": st.fixed_dictionaries({"content": st.lists(TOKENS, max_size=4) | JSON}) | JSON,
    },
)
USAGE = st.dictionaries(
    st.sampled_from(["prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details"]), JSON
)
COMPLETIONS = st.fixed_dictionaries({"choices": st.lists(CHOICES, max_size=3) | JSON}, optional={"usage": USAGE | JSON})
FORMS = [OutputFormat(mode, True, rationale) for mode in ("choice", "json", "text") for rationale in (False, True)]


@given(found=COMPLETIONS, form=st.sampled_from(FORMS))
def test_whatever_comes_is_a_verdict_a_null_with_its_reason_or_no_reply(
    found: dict[str, Any], form: OutputFormat
) -> None:
    try:
        reply = completion_of(found)
    except BadReply:
        return
    (row,) = reply_batch([(0, read(reply, form, BINARY))]).replies.to_pylist()
    assert (row["relevant"] is None) == (row["error"] is not None)
    assert row["probability"] is None or 0 <= row["probability"] <= 1
