"""Memory of a piece of work alone."""

import sys

import numpy as np
import pytest

from darklode.pipeline.train.fit.peak_memory import PeakMemory


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is Linux's")
def test_what_was_held_and_freed_before_does_not_count() -> None:
    first = PeakMemory()
    np.ones(12_500_000)
    assert first.megabytes() is not None
    assert 90 <= int(first.megabytes() or 0) < 130
    assert int(PeakMemory().megabytes() or 0) < 10
