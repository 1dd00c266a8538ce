"""Reproducible sums and random draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Run torch with one thread, so that sums have one order, and with one seed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
