"""Sharing a number of pairs among strata."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.validate.strata import allocate

SOME = st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 1000)), min_size=1, max_size=12)


@given(SOME, st.integers(0, 4000))
def test_all_is_given_and_nobody_gets_more_than_there_is(some: list[tuple[float, int]], total: int) -> None:
    shares, most = np.array([one for one, _ in some]), np.array([two for _, two in some])
    given_ = allocate(total, shares, most)
    assert given_.sum() == min(total, most.sum())
    assert (given_ >= 0).all()
    assert (given_ <= most).all()


def test_shares_are_kept_where_there_is_room() -> None:
    assert allocate(100, np.array([1.0, 2.0, 7.0]), np.array([500, 500, 500])).tolist() == [10, 20, 70]
    assert allocate(100, np.array([1.0, 2.0, 7.0]), np.array([500, 500, 40])).tolist() == [20, 40, 40]
    assert allocate(10, np.array([1.0, 0.0]), np.array([4, 50])).tolist() == [4, 6]
