"""One model swap for the tests of its parts."""

from __future__ import annotations

import pytest

from helpers.swapped import SwappedRun, swapped_run


@pytest.fixture(scope="session")
def swapped(tmp_path_factory: pytest.TempPathFactory) -> SwappedRun:
    """A released swap between two tiny models."""
    return swapped_run(tmp_path_factory.mktemp("swap"))
