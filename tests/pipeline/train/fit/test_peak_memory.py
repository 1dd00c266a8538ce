"""Memory of a piece of work alone."""

import sys

import numpy as np
import pytest
import torch

from darklode.pipeline.train.fit.peak_memory import PeakMemory


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is Linux's")
def test_what_was_held_and_freed_before_does_not_count() -> None:
    first = PeakMemory()
    np.ones(12_500_000)
    assert first.megabytes() is not None
    assert 90 <= int(first.megabytes() or 0) < 130
    assert int(PeakMemory().megabytes() or 0) < 10


def test_gpu_memory_is_unknown_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert PeakMemory().gpu_megabytes() is None


def test_memory_of_all_gpus_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was allocated before does not count."""
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "reset_peak_memory_stats": lambda _number: None,
        "memory_allocated": lambda number: (number + 1) * 2**20,
        "max_memory_allocated": lambda number: (number + 8) * 2**20,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    assert PeakMemory().gpu_megabytes() == 8 + 9 - 1 - 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_the_peak_of_a_gpu_is_counted_after_it_was_freed() -> None:
    before = torch.zeros(2**24, device="cuda")
    peak = PeakMemory()
    torch.zeros(2**26, device="cuda")
    assert peak.gpu_megabytes() == 256
    assert len(before) == 2**24
