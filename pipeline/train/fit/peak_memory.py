"""Peak memory of a piece of work, on the host and on GPUs, beyond what the process used before."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

_PROCESS_FOLDER = Path("/proc/self")


class PeakMemory:
    """Measures from its creation on. Resets the peak counter on Linux; unknown elsewhere.

    Freed memory is returned to the system first, where the C library can, so that its reuse is not overlooked.
    """

    def __init__(self) -> None:
        gc.collect()
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        self._gpu_before = self._reset_gpu_peaks()
        self._before: int | None = None
        with suppress(OSError):
            (_PROCESS_FOLDER / "clear_refs").write_text("5")  # resets the peak to the current memory (man 5 proc)
            self._before = _kilobytes("VmRSS")

    def megabytes(self) -> int | None:
        """Peak minus initial memory in MB; None if unknown."""
        return None if self._before is None else max(0, _kilobytes("VmHWM") - self._before) // 1024

    def gpu_megabytes(self) -> int | None:
        """Peak minus initial memory that torch allocated on all GPUs, in MB; None without a GPU."""
        cuda = _cuda()
        if cuda is None:
            return None
        peak = sum(cuda.max_memory_allocated(number) for number in range(cuda.device_count()))
        return int(max(0, peak - (self._gpu_before or 0)) // 2**20)

    @staticmethod
    def _reset_gpu_peaks() -> int | None:
        """Bytes that torch has allocated on all GPUs, at which the peaks begin; None without a GPU."""
        cuda = _cuda()
        if cuda is None:
            return None
        for number in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(number)
        return int(sum(cuda.memory_allocated(number) for number in range(cuda.device_count())))


def _cuda() -> Any:
    """`torch.cuda` if torch is loaded and sees a GPU; else None."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


def _kilobytes(name: str) -> int:
    lines = (_PROCESS_FOLDER / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
