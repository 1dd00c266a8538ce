"""How long texts are by a careful guess, and which fit into one request."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.base.remote.tokens import estimate_tokens, fill_batches, truncate


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 2),
        ("abc", 3),
        ("abcd", 4),
        ("a b\n", 4),
        ("a1", 4),
        ("12:30", 7),
        ("é", 3),
        ("天気", 5),
        ("\ud800", 3),
    ],
)
def test_letters_marks_and_other_scripts_weigh_differently(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@pytest.mark.slow
@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(one: str, other: str) -> None:
    assert estimate_tokens(one + other) >= estimate_tokens(one)


@given(st.text(min_size=1, max_size=60), st.integers(1, 30))
def test_a_cut_is_the_longest_beginning_within_the_bound(text: str, most: int) -> None:
    found = truncate(text, most)
    assert text.startswith(found)
    assert len(found) >= 1
    assert estimate_tokens(found) <= most or len(found) == 1
    if len(found) < len(text):
        assert estimate_tokens(text[: len(found) + 1]) > most


TEXTS = st.lists(st.text("ab 1", max_size=12), max_size=20)


@given(TEXTS, st.integers(1, 5), st.integers(3, 30))
def test_batches_hold_every_text_but_blank_ones_once_and_in_order(texts: list[str], most: int, tokens: int) -> None:
    batches = list(fill_batches(texts, "", 20, most, tokens))
    places = [place for batch in batches for place in batch.places.tolist()]
    assert places == [place for place, text in enumerate(texts) if text.strip()]
    for batch in batches:
        assert 1 <= len(batch.texts) <= most
        assert batch.tokens == sum(map(estimate_tokens, batch.texts))
        assert batch.tokens <= tokens or len(batch.texts) == 1
    for one, following in pairwise(batches):
        full = len(one.texts) == most or one.tokens + estimate_tokens(following.texts[0]) > tokens
        assert full, "a batch is closed only where the next text does not fit"


def test_a_prompt_counts_and_long_texts_are_cut_with_it() -> None:
    (batch,) = fill_batches(["abcdef" * 9], "query: ", 6, 9, 100)
    assert batch.texts == [truncate("query: " + "abcdef" * 9, 6)]
    assert batch.tokens <= 6
