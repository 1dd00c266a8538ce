"""The card tells what was learned from, what is reached, and when it is not the paper's prompt."""

from pathlib import Path

import pytest

from .conftest import Trained


@pytest.mark.slow
def test_the_card_tells_all_of_it(both: Trained) -> None:
    page = (Path(both.out.store.url) / "README.md").read_text()
    for title in ("Scores", "Trials", "Training history", "How to use it", "Limits"):
        assert f"## {title}" in page
    assert "39 triplets, 1 without a title, 1 without a negative" in page
    assert "an encoder uses three poolings instead, which differs from ScalingNote." in " ".join(page.split())
    assert 'SentenceTransformer("towers", truncate_dim=2)' in page
