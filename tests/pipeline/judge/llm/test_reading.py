"""From a chat completion to a verdict, or to none."""

from __future__ import annotations

import math
from typing import Any

import pytest

from darklode.pipeline.judge.llm.forms import Form, Unreadable
from darklode.pipeline.judge.llm.prompt import load_prompt
from darklode.pipeline.judge.llm.reading import label_probabilities, read, reply_batch, start_of

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
        ([token("yes", yes=0.3, no=0.1, Yes=0.5)], 0, ("yes", "no"), {"yes": 0.75, "no": 0.25}),
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


def test_the_label_is_found_from_the_end() -> None:
    parts = ['{"rationale": "not ', '"yes" but', '", "label": "', "no", '"}']
    tokens = [token(part, **{part: 1.0}) for part in parts]
    assert start_of('"no"', tokens) == sum(map(len, parts[:3]))


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
        ("text", "Yes", "none of the labels"),
        ("text", "", "empty"),
        ("text", None, "empty"),
        ("text", ["yes"], "empty"),
        ("choice", "yes!", "none of the labels"),
        ("json", "yes", "no JSON"),
        ("json", '"yes"', "no JSON object"),
        ("json", '{"label": "maybe"}', "none of the labels"),
        ("json", '{"label": ["yes"]}', "none of the labels"),
        ("json", '{"label": "yes", "other": 1}', "no JSON object with label"),
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
    assert reading.said["raw_reply"] == (content if isinstance(content, str) else None)


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


@pytest.mark.parametrize("usage", [None, [], {"prompt_tokens": "many"}, {"prompt_tokens_details": None}])
def test_usage_of_another_shape_is_unknown(usage: object) -> None:
    said = read(completion("yes") | {"usage": usage}, Form("choice", False), BINARY).said
    assert "prompt_tokens" not in said


def test_earlier_attempts_are_paid_for_too() -> None:
    first = read(completion("maybe"), Form("text", False), BINARY)
    second = read(completion("no"), Form("text", False), BINARY)
    second.add_usage(first)
    (row,) = reply_batch([(7, second)]).replies.to_pylist()
    assert (row["prompt_tokens"], row["completion_tokens"], row["attempts"]) == (180, 2, 2)
    assert row["error"] is None


def test_a_form_reads_only_its_own() -> None:
    with pytest.raises(Unreadable):
        Form("json", False).read("yes", BINARY.labels)
    assert Form("text", False).read(" yes\n", BINARY.labels) == ("yes", None)
