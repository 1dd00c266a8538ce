"""Probabilities of labels from those of tokens."""

from __future__ import annotations

from typing import Any

import pytest

from darklode.pipeline.judge.llm.logprobs import (
    LABEL_NOT_COVERED,
    LOGPROBS_IMPOSSIBLE,
    NO_ALTERNATIVES,
    NoProbability,
    content_tokens,
    label_probabilities,
    start_of,
)
from helpers.token_rows import plain, token


@pytest.mark.parametrize(
    ("tokens", "start", "labels", "expected"),
    [
        ([token("yes", yes=0.6, no=0.4)], 0, ("yes", "no"), {"yes": 0.6, "no": 0.4}),
        ([token("yes", yes=0.3, no=0.1, Yes=0.5, Well=0.1)], 0, ("yes", "no"), {"yes": 8 / 9, "no": 1 / 9}),
        ([token("Yes", yes=0.2, no=0.1, Yes=0.7)], 0, ("yes", "no"), {"yes": 0.9, "no": 0.1}),
        ([token(" yes", _yes=0.5, yes=0.25, no=0.25)], 0, ("yes", "no"), {"yes": 0.75, "no": 0.25}),
        ([token("y", y=0.8, n=0.2), token("es", es=1.0)], 0, ("yes", "no"), {"yes": 0.8, "no": 0.2}),
        ([token("y", y=0.8, n=0.2), *plain("es")], 0, ("yes", "no"), {"yes": 0.8, "no": 0.2}),
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
    ],
)
def test_probabilities_of_labels(
    tokens: list[dict[str, Any]], start: int, labels: tuple[str, ...], expected: dict[str, float]
) -> None:
    assert label_probabilities(tokens, start, labels) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([token("Well", Well=0.7, yes=0.1, no=0.2)], LABEL_NOT_COVERED),
        ([token("maybe", maybe=0.9, yes=0.1)], LABEL_NOT_COVERED),
        ([], LABEL_NOT_COVERED),
        (plain("yes"), NO_ALTERNATIVES),
        ([token("y", y=0.8, n=0.8), token("es", es=0.9)], LOGPROBS_IMPOSSIBLE),
        ([{"token": "yes", "logprob": -0.5, "top_logprobs": [{"token": "no", "logprob": -0.5}]}], LOGPROBS_IMPOSSIBLE),
        ([{"token": "yes", "logprob": 3.0, "top_logprobs": [{"token": "yes", "logprob": -1}]}], LOGPROBS_IMPOSSIBLE),
    ],
)
def test_tokens_without_a_probability_say_why(tokens: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(NoProbability) as caught:
        label_probabilities(tokens, 0, ("yes", "no"))
    assert str(caught.value) == why


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
