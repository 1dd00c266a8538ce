"""The nearest texts by float32 products: what sorting all of them gives, however they are cut."""

import numpy as np
import pytest

from darklode.pipeline.train.data import nearest as module
from darklode.pipeline.train.data.nearest import nearest


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that are smaller than the lists are long, and do not divide anything."""
    monkeypatch.setattr(module, "TEXTS_PER_BLOCK", 7)
    monkeypatch.setattr(module, "QUERIES_PER_BLOCK", 3)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("n", [5, 100])
def test_it_finds_what_sorting_finds(n: int) -> None:
    draws = np.random.default_rng(0)
    texts = draws.integers(-3, 4, (n, 6)).astype(np.float32)  # whole numbers: products are exact, and many are equal
    queries = draws.integers(-3, 4, (10, 6)).astype(np.float32)
    queries[4] = 0
    positions, scores = nearest(queries, lambda asked: texts[asked - 50], range(50, 50 + n), 12)
    products = queries @ texts.T
    for row in range(10):
        wanted = [] if row == 4 else np.lexsort((np.arange(n), -products[row]))[:12].tolist()
        rest = [-1] * (12 - len(wanted))
        assert positions[row].tolist() == [place + 50 for place in wanted] + rest
        assert scores[row, : len(wanted)].tolist() == products[row, wanted].tolist()
        assert np.isnan(scores[row, len(wanted) :]).all()
