"""Ctrl-C that cannot get lost.

A KeyboardInterrupt is raised wherever the program happens to be, and a library may swallow it there. So it is also
remembered, and the stages look at it between their steps. Within an import it waits for the import's end: raised there,
it may leave Python's import lock taken, and every other thread that imports would wait for ever.
"""

import signal
import threading
from types import FrameType

AGAIN_SECONDS = 0.05

_stop_requested = threading.Event()


def listen() -> None:
    """Remember Ctrl-C from now on; call it from the main thread."""
    signal.signal(signal.SIGINT, _remember)


def check() -> None:
    """Stop if somebody asked to.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed, now or earlier.
    """
    if _stop_requested.is_set():
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    _stop_requested.set()
    if not _importing(frame):
        raise KeyboardInterrupt
    again = threading.Timer(AGAIN_SECONDS, signal.pthread_kill, (threading.main_thread().ident, number))
    again.daemon = True
    again.start()


def _importing(frame: FrameType | None) -> bool:
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
