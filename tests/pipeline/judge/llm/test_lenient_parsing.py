"""Near misses are read, and nothing is guessed."""

from __future__ import annotations

import pytest

from darklode.pipeline.judge.llm.lenient_parsing import find_answer, find_label, thoughts_in

LABELS = ("yes", "no")


@pytest.mark.parametrize(
    "said",
    [
        *("yes", " yes\n", "Yes", "YES", "yes.", "Yes!", "yes。", '"yes"', "'Yes'", "“yes”", "„yes“", "«yes»", "`yes`"),
        *('"Yes."', '"yes".', '" yes "'),
    ],
)
def test_one_label_and_nothing_else(said: str) -> None:
    assert find_label(said, LABELS) == "yes"


@pytest.mark.parametrize(
    "said",
    [
        *(
            "",
            ".",
            '"',
            '""',
            "yes?",
            "yes no",
            "yes, but",
            "yes/no",
            "no yes",
            "maybe",
            "yes:",
            '"yes',
            "'yes\"",
            "not",
        ),
        *("y", "(yes)", "yes yes", None, True, ["yes"], {"label": "yes"}, 1.0),
    ],
)
def test_more_or_less_than_a_label_is_none(said: object) -> None:
    assert find_label(said, LABELS) is None


def test_a_number_is_the_label_that_it_is_called() -> None:
    assert find_label(2, ("0", "1", "2")) == "2"
    assert find_label(20, ("0", "1", "2")) is None
    assert find_label(True, ("0", "1", "True")) is None


def test_case_counts_where_it_tells_labels_apart() -> None:
    assert find_label("A.", ("A", "a")) == "A"
    assert find_label("B", ("A", "b", "a")) is None
    assert find_label("“n.a.”", ("n.a.", "ok")) == "n.a."


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (" yes ", "yes"),
        ("```\nyes\n```", "yes"),
        ('```json\n{"label": "yes"}\n```\n', '{"label": "yes"}'),
        ("<think>\nIs it? no.\n</think>\n\nyes", "yes"),
        ("<think></think>yes", "yes"),
        ("Is it? no.\n</think>\n\nyes", "yes"),
        ("<think>no</think>\n```\nyes\n```", "yes"),
        ("<think>no, yes", "<think>no, yes"),
        ('{"rationale": "</think>", "label": "yes"}', '{"rationale": "</think>", "label": "yes"}'),
        ('```json\n{"rationale": "</think>"}\n```', '{"rationale": "</think>"}'),
        ("```\nyes", "```\nyes"),
        ("Here it is:\n```\nyes\n```", "Here it is:\n```\nyes\n```"),
    ],
)
def test_the_answer_within_a_reply(reply: str, said: str) -> None:
    assert find_answer(reply) == said
    assert reply[thoughts_in(reply) :].strip().endswith(said) or "```" in reply
