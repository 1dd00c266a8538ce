"""Reproducible sums and random draws."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
"""Environment variable without which torch refuses deterministic matrix products on a GPU."""


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Run torch with one thread and one seed, and on a GPU with deterministic kernels, so that sums have one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    try:
        with _deterministic_kernels():
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _deterministic_kernels() -> Iterator[None]:
    """On a machine with a GPU, choose deterministic kernels; the gradient of attention has others by default."""
    if not torch.cuda.is_available():
        yield
        return
    os.environ.setdefault(*CUBLAS_WORKSPACE)
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    debugging: Any = torch.utils.deterministic
    fills_memory = debugging.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    debugging.fill_uninitialized_memory = False  # it finds bugs and costs time
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        debugging.fill_uninitialized_memory = fills_memory
