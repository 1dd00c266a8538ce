"""Handling of Ctrl-C.

A library may swallow a KeyboardInterrupt, so it is also remembered, and stages check it between units of work. During
an import it is delayed: raised there it can leave Python's import lock held, which blocks every thread that imports.
"""

import signal
import threading
from types import FrameType

RETRY_SECONDS = 0.05  # between attempts to stop during an import
INTERRUPTED_EXIT_CODE = 130  # exit code of shells after Ctrl-C
INTERRUPTED_MESSAGE = "interrupted; run the same command again to resume"

_stop_requested = threading.Event()


def listen() -> None:
    """Remember Ctrl-C from now on; to be called from the main thread."""
    signal.signal(signal.SIGINT, _remember)


def check() -> None:
    """Stop after Ctrl-C.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    if _stop_requested.is_set():
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    _stop_requested.set()
    if not _is_importing(frame):
        raise KeyboardInterrupt
    again = threading.Timer(RETRY_SECONDS, signal.pthread_kill, (threading.main_thread().ident, number))
    again.daemon = True
    again.start()


def _is_importing(frame: FrameType | None) -> bool:
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
