"""Ctrl-C that cannot get lost.

A KeyboardInterrupt is raised wherever the program happens to be, and a library may swallow it there. So it is also
remembered, and the stages look at it between their steps.
"""

import signal
import threading
from types import FrameType

_asked = threading.Event()


def listen() -> None:
    """Remember Ctrl-C from now on; call it from the main thread."""
    signal.signal(signal.SIGINT, _remember)


def check() -> None:
    """Stop if somebody asked to.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed, now or earlier.
    """
    if _asked.is_set():
        raise KeyboardInterrupt


def _remember(_number: int, _frame: FrameType | None) -> None:
    _asked.set()
    raise KeyboardInterrupt
