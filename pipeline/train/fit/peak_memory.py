"""Peak memory of a piece of work, beyond what the process used before."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

_PROCESS_FOLDER = Path("/proc/self")


class PeakMemory:
    """Measures from its creation on. Resets the peak counter on Linux; unknown elsewhere.

    Freed memory is returned to the system first, where the C library can, so that its reuse is not overlooked.
    """

    def __init__(self) -> None:
        gc.collect()
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        self._before: int | None = None
        with suppress(OSError):
            (_PROCESS_FOLDER / "clear_refs").write_text("5")  # resets the peak to the current memory (man 5 proc)
            self._before = _kilobytes("VmRSS")

    def megabytes(self) -> int | None:
        """Peak minus initial memory in MB; None if unknown."""
        return None if self._before is None else max(0, _kilobytes("VmHWM") - self._before) // 1024


def _kilobytes(name: str) -> int:
    lines = (_PROCESS_FOLDER / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
