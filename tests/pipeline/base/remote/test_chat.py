"""What a chat completion is, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from darklode.pipeline.base.remote.call_errors import BadReply
from darklode.pipeline.base.remote.chat import completion_of, incomplete_reason, max_tokens, merge_fields


def choice(said: object, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": said}} | more


def said(*choices: dict[str, Any]) -> object:
    return completion_of({"choices": choices})["choices"][0]["message"]["content"]


def test_the_first_choice_counts_wherever_it_stands() -> None:
    assert said(choice("c", index=2), choice("a", index=0), choice("b", index=1)) == "a"
    assert said(choice("a"), choice("b")) == "a"
    assert said(choice("a", index=None)) == "a"


@pytest.mark.parametrize("ended", ["error", "abort"])
def test_a_server_that_failed_midway_has_not_answered(ended: str) -> None:
    with pytest.raises(BadReply, match=f"ended with the finish_reason {ended}"):
        said(choice("yes", finish_reason=ended))


@pytest.mark.parametrize("ended", ["stop", "length", None, [], {"error": 1}])
def test_another_end_is_a_reply(ended: object) -> None:
    assert said(choice("yes", finish_reason=ended)) == "yes"


def test_texts_are_sound() -> None:
    assert said(choice("so \ud800 \U0001f600")) == "so \ufffd \U0001f600"


def test_content_in_parts_is_the_text_of_its_parts() -> None:
    parts = [{"type": "text", "text": "ye"}, {"type": "image_url"}, {"type": "text", "text": "s"}, {"type": "text"}]
    assert said(choice(parts)) == "yes"
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "so "}, {"type": "text", "text": "no"}]}
    (found,) = completion_of({"choices": [choice([thinking, {"type": "text", "text": "yes"}])]})["choices"]
    assert (found["message"]["content"], found["message"]["reasoning_content"]) == ("yes", "so no")
    (found,) = completion_of({"choices": [choice([{"type": "refusal", "refusal": "No."}], finish_reason="stop")]})[
        "choices"
    ]
    assert incomplete_reason(found) == "the model refused to answer"
    for other in (["yes"], [{"type": "image_url"}], [1, {"type": "text", "text": "yes"}]):
        assert said(choice(other)) == other


NONE: list[Any] = [None, [], "ab", [None], [{}], [{"message": None}], {"0": 1}, [choice("a", index="x"), choice("b")]]


@pytest.mark.parametrize("choices", NONE)
def test_anything_else_is_none(choices: object) -> None:
    with pytest.raises(BadReply, match="is not a chat completion"):
        completion_of({"choices": choices})


@pytest.mark.parametrize(
    ("given", "sent", "most"),
    [
        ({}, {"max_tokens": 32}, 32),
        ({"max_tokens": 500}, {"max_tokens": 500}, 500),
        ({"max_tokens": None}, {}, 0),
        ({"max_completion_tokens": 500}, {"max_completion_tokens": 500}, 500),
        ({"max_completion_tokens": None}, {"max_tokens": 32}, 32),
        ({"max_completion_tokens": 9, "max_tokens": 500}, {"max_completion_tokens": 9, "max_tokens": 500}, 500),
        ({"max_completion_tokens": 500, "max_tokens": 9}, {"max_completion_tokens": 500, "max_tokens": 9}, 500),
    ],
)
def test_one_limit_of_a_reply_leaves_out_the_default_one(
    given: dict[str, Any], sent: dict[str, int], most: int
) -> None:
    found = merge_fields({"max_tokens": 32, "temperature": 0}, given)
    assert (found, max_tokens(found)) == (sent | {"temperature": 0}, most)
