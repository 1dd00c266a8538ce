"""What the teacher costs, in the card of a distilled judge."""

import pytest

from darklode.pipeline.reranker.distil.card import format_cost


def test_the_cost_of_a_thousand_pairs() -> None:
    text = format_cost([400.0, 5.0], (2.0, 8.0))
    assert text == "The teacher costs 0.84 per 1,000 pairs; a cascade costs its `teacher_share` of that."


@pytest.mark.parametrize(("tokens", "prices"), [([None, 5.0], (2.0, 8.0)), ([400.0, 5.0], (0.0, 0.0))])
def test_an_unknown_cost_is_not_stated(tokens: list[float | None], prices: tuple[float, float]) -> None:
    assert not format_cost(tokens, prices)
