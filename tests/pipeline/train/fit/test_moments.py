"""Covariances of vectors that are added in parts."""

import numpy as np

from darklode.pipeline.train.fit.moments import Moments

D = 6


def test_moments_of_parts_are_those_of_all_rows() -> None:
    rows = np.random.default_rng(5).standard_normal((50, D)).astype(np.float32)
    parts, taken = Moments(D), Moments(D)
    parts.add(rows[:20])
    parts.add(rows[20:])
    taken.add_parts(lambda positions: rows[positions], len(rows))
    for moments in (parts, taken):
        assert np.allclose(moments.covariance, np.cov(rows.T, bias=True), atol=1e-5)
