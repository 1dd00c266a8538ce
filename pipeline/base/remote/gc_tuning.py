"""Looking for cyclic garbage after every 700 new objects is a third of the work of thousands of calls a second."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (20_000, 50, 100)
"""Objects between two looks, and how many looks until older ones are looked at: some MB that may wait to be freed."""

_lock = threading.Lock()
_open: list[tuple[int, int, int]] = []


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Let the process look for garbage less often as long as any such context is open."""
    with _lock:
        _open.append(_open[0] if _open else gc.get_threshold())
        gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        with _lock:
            before = _open.pop()
            if not _open:
                gc.set_threshold(*before)
