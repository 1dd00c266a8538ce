"""The settings of pooling: lists that reach as deep as the pool."""

import pytest
from pydantic import ValidationError

from darklode.schemas.pooling import PoolSettings


def test_a_pool_that_is_deeper_than_its_lists_is_refused() -> None:
    with pytest.raises(ValidationError, match="depth 421 must not exceed search_depth 420"):
        PoolSettings(depth=421)
    assert PoolSettings(depth=420).depth == PoolSettings(depth=420, search_depth=420).search_depth == 420
