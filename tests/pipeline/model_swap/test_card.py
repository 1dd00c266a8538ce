"""The card of a model swap."""

import pytest

from helpers.swapped import SwappedRun


@pytest.mark.slow
def test_the_card_has_results_costs_and_limits(swapped: SwappedRun) -> None:
    card = (swapped.root / "out" / "README.md").read_text()
    titles = ["Recall on held-out queries", "Labelled quality", "Partial re-embedding", "Maps", "Limits", "Licence"]
    assert [title for title in titles if f"## {title}" not in card] == []
    assert "**Released**: mapped queries find" in card
    assert "no label was used" in card
    assert "library_name: sentence-transformers" in card
