"""Handling of Ctrl-C.

A library may swallow a KeyboardInterrupt, so it is also remembered, and stages check it between units of work. During
an import it is delayed until the line after it: raised within, it can leave Python's import lock held, which blocks
every thread that imports.
"""

import signal
import sys
import threading
from types import FrameType

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


def _remember(_number: int, frame: FrameType | None) -> None:
    _stop_requested.set()
    importing = _importing_frame(frame)
    if not importing:
        raise KeyboardInterrupt
    importing.f_trace = _interrupt
    sys.settrace(_trace_nothing)  # frames have their own trace function called only while a global one is set


def _importing_frame(frame: FrameType | None) -> FrameType | None:
    """The frame that began the outermost import in progress, or None."""
    importing = None
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            importing = frame.f_back
        frame = frame.f_back
    return importing


def _interrupt(_frame: FrameType, _event: str, _argument: object) -> None:
    sys.settrace(None)
    raise KeyboardInterrupt


def _trace_nothing(_frame: FrameType, _event: str, _argument: object) -> None:
    return None
