"""Unknown numbers as null."""

import numpy as np

from darklode.pipeline.base.finite import finite_or_none


def test_only_finite_numbers_are_kept() -> None:
    values = (1, np.float32(0.5), float("nan"), np.inf, -np.inf)
    assert [finite_or_none(value) for value in values] == [1.0, 0.5, None, None, None]
