import pytest

from helpers.reviewed_run import Pairs, pairs


@pytest.fixture
def made() -> Pairs:
    return pairs({"a": 120, "b": 60})
