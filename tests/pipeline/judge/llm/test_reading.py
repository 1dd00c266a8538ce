"""From a chat completion to a verdict, or to none."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.base.remote.chat import completion_of
from darklode.pipeline.base.remote.faults import BadReply
from darklode.pipeline.judge.llm.forms import Form
from darklode.pipeline.judge.llm.prompt import load_prompt
from darklode.pipeline.judge.llm.reading import content_tokens, label_probabilities, read, reply_batch, start_of

BINARY, GRADED = load_prompt("binary"), load_prompt("graded")


def token(text: str, **shares: float) -> dict[str, Any]:
    """A token and its alternatives with their probabilities."""
    top = [{"token": name.replace("_", " "), "logprob": math.log(share)} for name, share in shares.items()]
    return {"token": text, "logprob": {one["token"]: one["logprob"] for one in top}[text], "top_logprobs": top}


def completion(content: object, tokens: list[dict[str, Any]] | None = None, **choice: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"} | choice
    if tokens is not None:
        said["logprobs"] = {"content": tokens}
    return {"choices": [said], "usage": {"prompt_tokens": 90, "completion_tokens": 1}}


@pytest.mark.parametrize(
    ("tokens", "start", "labels", "expected"),
    [
        ([token("yes", yes=0.6, no=0.4)], 0, ("yes", "no"), {"yes": 0.6, "no": 0.4}),
        ([token("yes", yes=0.3, no=0.1, Yes=0.5, Well=0.1)], 0, ("yes", "no"), {"yes": 8 / 9, "no": 1 / 9}),
        ([token("Yes", yes=0.2, no=0.1, Yes=0.7)], 0, ("yes", "no"), {"yes": 0.9, "no": 0.1}),
        ([token("Well", Well=0.7, yes=0.1, no=0.2)], 0, ("yes", "no"), {}),
        ([token(" yes", _yes=0.5, yes=0.25, no=0.25)], 0, ("yes", "no"), {"yes": 0.75, "no": 0.25}),
        ([token("y", y=0.8, n=0.2), token("es", es=1.0)], 0, ("yes", "no"), {"yes": 0.8, "no": 0.2}),
        (
            [token("not", **{"not": 0.5, "rel": 0.5}), token("-rel", **{"-rel": 1.0})],
            0,
            ("relevant", "not-relevant"),
            {"relevant": 0.5, "not-relevant": 0.5},
        ),
        (
            [token("grade", grade=1.0), token("-a", **{"-a": 0.7, "-b": 0.3})],
            0,
            ("grade-a", "grade-b"),
            {"grade-a": 0.7, "grade-b": 0.3},
        ),
        (
            [token('{"label": "', **{'{"label": "': 1.0}), token("no", no=0.9, yes=0.1), token('"}', **{'"}': 1.0})],
            11,
            ("yes", "no"),
            {"yes": 0.1, "no": 0.9},
        ),
        ([token(' "no"', **{' "no"': 0.8, ' "yes"': 0.2})], 2, ("yes", "no"), {"yes": 0.2, "no": 0.8}),
        ([token("maybe", maybe=1.0)], 0, ("yes", "no"), {}),
        ([], 0, ("yes", "no"), {}),
    ],
)
def test_probabilities_of_labels(
    tokens: list[dict[str, Any]], start: int, labels: tuple[str, ...], expected: dict[str, float]
) -> None:
    assert label_probabilities(tokens, start, labels) == pytest.approx(expected)


def plain(*texts: str) -> list[dict[str, Any]]:
    """Tokens without alternatives."""
    return [{"token": text, "logprob": 0.0, "top_logprobs": []} for text in texts]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((), ()),
        ((), ("<|im_end|>",)),
        ((), ("", "</s>")),
        (("The", " chunk", " says", " yes", ",", " so", " no", ".", "\n</think>", "\n\n"), ("<|im_end|>",)),
        (("Is", " it", " yes", "</think>"), ("[EOS]",)),
    ],
)
def test_the_contents_own_tokens_are_the_last(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    for texts in ([" yes"], ["y", "es", "\n"], ["<yes>"]):
        own, content = plain(*texts), "".join(texts).strip()
        found = content_tokens([*plain(*before), *own, *plain(*after)], content, "".join(before[:-2]))
        assert "".join(one["token"] for one in found).strip() == content


@pytest.mark.parametrize(
    ("texts", "thoughts"),
    [
        (["The", " chunk", " helps", "."], ""),
        (["So", " it", " is", " yes"], "So it is yes"),
        (["yes", " it", " is"], ""),
        (["yesterday"], ""),
        ([], ""),
    ],
)
def test_tokens_that_hold_no_content_are_none_of_it(texts: list[str], thoughts: str) -> None:
    assert list(content_tokens(plain(*texts), "yes", thoughts)) == []


def test_the_label_of_an_object_is_that_of_its_key() -> None:
    parts = ['{"rationale": "not ', '\\"label\\": \\"no\\" but', '", "label": "', "no", '", "source": "no"}']
    assert start_of("no", plain(*parts), key=True) == sum(map(len, parts[:3]))
    assert start_of("2", plain('{"label": 2}'), key=True) == 10
    assert start_of("no", plain('{"label": "no", "other": {"label": "no"}}'), key=True) is None
    assert start_of("no", plain('{"label": "NO"}'), key=True) == 11
    assert start_of("no", plain("<think>", "no, yes", "</think>", "\nno."), key=False) == 23


def test_a_model_that_thinks_has_its_labels_probability_from_the_label() -> None:
    thoughts = [token("Yes", Yes=0.9, no=0.1), *plain(" it", " seems", "</think>", "\n\n")]
    own = [token("no", no=0.8, yes=0.2), *plain("<|im_end|>")]
    message = {"content": "no", "reasoning_content": "Yes it seems"}
    form = Form("choice", True)
    reading = read(completion("no", [*thoughts, *own], message=message), form, BINARY)
    assert (reading.said["relevant"], reading.thought) == (False, True)
    assert reading.said["probability"] == pytest.approx(0.2)
    hidden = read(completion("no", thoughts, message=message), form, BINARY)
    assert (hidden.said["relevant"], "probability" in hidden.said) == (False, False)


def test_thoughts_within_the_content_are_left_out() -> None:
    content = "<think>\nIt says yes.\n</think>\n\nno"
    tokens = [*plain("<think>", "\nIt says", " yes", ".\n", "</think>", "\n\n"), token("no", no=0.9, yes=0.1)]
    reading = read(completion(content, tokens), Form("text", True), BINARY)
    assert (reading.said["relevant"], reading.thought) == (False, True)
    assert reading.said["probability"] == pytest.approx(0.1)


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
    assert read(said, Form("text", False), BINARY).thought is thought


def test_a_label_with_its_probability() -> None:
    reading = read(completion("yes", [token("yes", yes=0.6, no=0.2)]), Form("choice", True), BINARY)
    assert reading.said["relevant"] is True
    assert reading.said["probability"] == pytest.approx(0.75)
    assert "grade" not in reading.said
    assert (reading.said["prompt_tokens"], reading.said["attempts"]) == (90, 1)


def test_a_grade_with_its_expectation() -> None:
    shares = {"0": 0.1, "1": 0.4, "2": 0.3, "3": 0.2}
    said = read(completion("1", [token("1", **shares)]), Form("choice", True), GRADED).said
    assert (said["grade"], said["relevant"]) == (1, False)
    assert said["probability"] == pytest.approx(0.5)
    assert said["expected_grade"] == pytest.approx(0.4 + 0.6 + 0.6)


def test_without_log_probabilities_the_probability_is_unknown() -> None:
    for form in (Form("choice", True), Form("choice", False)):
        said = read(completion("no"), form, BINARY).said
        assert said["relevant"] is False
        assert "probability" not in said


def test_a_rationale_is_kept() -> None:
    content = '{"rationale": "It says \\"no\\".", "label": "yes"}'
    said = read(completion(content), Form("json", False, rationale=True), BINARY).said
    assert (said["relevant"], said["rationale"]) == (True, 'It says "no".')


@pytest.mark.parametrize(
    ("form", "content", "why"),
    [
        ("text", "I would answer no", "none of the labels"),
        ("text", "see RFC 2119", "none of the labels"),
        ("text", "yes\nno", "none of the labels"),
        ("text", "yes?", "none of the labels"),
        ("text", "yes no", "none of the labels"),
        ("text", "<think>no</think>", "none of the labels"),
        ("text", "<think>Hm. yes", "none of the labels"),
        ("text", "", "empty"),
        ("text", None, "empty"),
        ("text", ["yes"], "empty"),
        ("choice", "not no", "none of the labels"),
        ("json", "yes", "no JSON"),
        ("json", '"yes"', "no JSON object"),
        ("json", '{"label": "maybe"}', "none of the labels"),
        ("json", '{"label": ["yes"]}', "none of the labels"),
        ("json", '{"Label": "yes"}', "no JSON object with label"),
        ("json", '{"label": true}', "none of the labels"),
        ("json", '{"label": ' * 10_000, "nested too deep (RecursionError)"),
        ("json", '{"label": "yes", "label": "no"}', "contradictory"),
        ("json", '{"label": "yes"} {"label": "no"}', "no JSON"),
        ("json+rationale", '{"rationale": 3, "label": "yes"}', "none of the labels"),
        ("json+rationale", '{"label": "yes"}', "no JSON object with label and rationale"),
    ],
)
def test_what_has_another_form_is_unreadable(form: str, content: object, why: str) -> None:
    mode, _, more = form.partition("+")
    reading = read(completion(content), Form(mode, False, rationale=bool(more)), BINARY)
    assert not reading.readable
    assert why in reading.said["error"]
    assert reading.said["raw_reply"] == (content[:4000] or None if isinstance(content, str) else None)


@pytest.mark.parametrize("content", ["3 or 2", "Grade: 3", "3/3", "RFC 2119", "two"])
def test_no_grade_is_fished_out_of_prose(content: str) -> None:
    assert not read(completion(content), Form("text", False), GRADED).readable


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"finish_reason": "length"}, "cut off at the token limit"),
        ({"finish_reason": "content_filter"}, "content filter"),
        ({"message": {"content": None, "refusal": "I can't help with that."}}, "refused"),
        ({"logprobs": {"content": [token("yes", yes=0.05, no=0.9)]}}, "contradictory"),
    ],
)
def test_truncated_refused_and_contradictory_replies_are_null(choice: dict[str, Any], why: str) -> None:
    reading = read(completion("yes", **choice), Form("choice", True), BINARY)
    assert not reading.readable
    assert why in reading.said["error"]
    assert reading.said["raw_reply"]


@pytest.mark.parametrize("broken", [{"content": [{}]}, {"content": "x"}, {"content": [None]}, [], "x"])
def test_log_probabilities_of_another_shape_are_none(broken: object) -> None:
    assert "probability" not in read(completion("yes", logprobs=broken), Form("choice", True), BINARY).said


OTHER_USAGE: list[object] = [
    *(None, [], {"prompt_tokens": "many"}, {"prompt_tokens_details": None}, {"prompt_tokens": 2**31}),
    *({"prompt_tokens": -1}, {"prompt_tokens": True}, {"prompt_tokens": 9.0}, {"prompt_tokens": 10**400}),
]


@pytest.mark.parametrize("usage", OTHER_USAGE)
def test_usage_of_another_shape_is_unknown(usage: object) -> None:
    said = read(completion("yes") | {"usage": usage}, Form("choice", False), BINARY).said
    assert "prompt_tokens" not in said


def test_more_tokens_than_there_can_be_are_unknown() -> None:
    first, second = (read(completion(said), Form("text", False), BINARY) for said in ("maybe", "no"))
    first.said["prompt_tokens"] = 2**31 - 1
    second.add_usage(first)
    (row,) = reply_batch([(0, second)]).replies.to_pylist()
    assert (row["prompt_tokens"], row["completion_tokens"]) == (None, 2)


def test_earlier_attempts_are_paid_for_too() -> None:
    first = read(completion("maybe"), Form("text", False), BINARY)
    second = read(completion("no"), Form("text", False), BINARY)
    second.add_usage(first)
    (row,) = reply_batch([(7, second)]).replies.to_pylist()
    assert (row["prompt_tokens"], row["completion_tokens"], row["attempts"]) == (180, 2, 2)
    assert row["error"] is None


def test_texts_that_no_file_can_hold_are_mended() -> None:
    content = '{"rationale": "so \\ud800 it is", "label": "yes", "\udfff": 1}'
    said = read(completion_of(completion(content)), Form("json", False, rationale=True), BINARY)
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
FORMS = [Form(mode, True, rationale) for mode in ("choice", "json", "text") for rationale in (False, True)]


@given(found=COMPLETIONS, form=st.sampled_from(FORMS))
def test_whatever_comes_is_a_verdict_a_null_with_its_reason_or_no_reply(found: dict[str, Any], form: Form) -> None:
    try:
        reply = completion_of(found)
    except BadReply:
        return
    (row,) = reply_batch([(0, read(reply, form, BINARY))]).replies.to_pylist()
    assert (row["relevant"] is None) == (row["error"] is not None)
    assert row["probability"] is None or 0 <= row["probability"] <= 1
