"""How much memory a piece of work takes beyond what the process holds before it."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

_OWN = Path("/proc/self")


class PeakMemory:
    """Counts from its making on. Linux forgets the peak then; elsewhere nothing is known.

    What was freed before is given back first, where the C library can, so that it is not used again unseen.
    """

    def __init__(self) -> None:
        gc.collect()
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        self._before: int | None = None
        with suppress(OSError):
            (_OWN / "clear_refs").write_text("5")  # man 5 proc: the peak is what is held now
            self._before = _kilobytes("VmRSS")

    def megabytes(self) -> int | None:
        """The most that was held since, less what was held at first; None where it cannot be known."""
        return None if self._before is None else max(0, _kilobytes("VmHWM") - self._before) // 1024


def _kilobytes(name: str) -> int:
    lines = (_OWN / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
