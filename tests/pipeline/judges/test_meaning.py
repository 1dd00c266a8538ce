import numpy as np
import pytest

from pipeline.judges.meaning import Meaning, products
from pipeline.retrievers.port import Hits
from pipeline.terms import TermSpace

APART = Meaning(TermSpace([["alpha beta", "gamma delta", ""]]))
FIRST, SECOND = APART.vectors[:1], APART.vectors[1:2]


def found(*rows: int) -> Hits:
    return Hits(np.array([rows], dtype=np.int64), np.ones((1, len(rows)), dtype=np.float32))


def test_chunks_without_a_common_word_or_neighbour_have_nothing_in_common() -> None:
    assert products(FIRST, SECOND)[0] == pytest.approx(0, abs=10)
    assert products(FIRST, FIRST)[0] == pytest.approx(4000**2, rel=1e-3)
    assert not APART.vectors[2].any()


@pytest.mark.parametrize("rows", [(1,), (1, 1, 1), (1, 1, -1, -1)])
def test_the_query_and_the_mean_of_its_finds_weigh_the_same(rows: tuple[int, ...]) -> None:
    moved = APART.with_feedback(FIRST, found(*rows))
    assert products(moved, FIRST)[0] == pytest.approx(products(moved, SECOND)[0], rel=1e-3)


def test_a_query_without_finds_stays_where_it_is() -> None:
    np.testing.assert_allclose(APART.with_feedback(FIRST, found(-1, -1)), FIRST, atol=1)


def test_the_best_product_is_that_of_the_nearest_chunk_and_never_below_zero() -> None:
    queries = np.concatenate([FIRST, -FIRST, 0 * FIRST])
    assert APART.best(queries).tolist() == [products(FIRST, FIRST)[0], 0, 0]
