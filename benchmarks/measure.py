"""Measuring time and memory of a piece of work."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

STATUS = Path("/proc/self/status")


def processor_seconds(work: Callable[[], object]) -> float:
    """Processor time of a call: all threads of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def child_seconds() -> float:
    """Processor seconds of all child processes that have ended."""
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def peak_megabytes() -> float:
    """Peak resident memory of this process.

    Linux: VmHWM, because ru_maxrss also counts the parent's memory at the fork.
    """
    if STATUS.exists():
        return _status_field("VmHWM")
    unit = 2**20 if platform.system() == "Darwin" else 2**10
    return getrusage(RUSAGE_SELF).ru_maxrss / unit


def resident_megabytes() -> float:
    """Resident memory of this process now. Linux only."""
    return _status_field("VmRSS")


def _status_field(name: str) -> float:
    match = re.search(rf"^{name}:\s+(\d+)", STATUS.read_text(encoding="utf-8"), re.MULTILINE)
    return int(match[1]) / 1024 if match else float("nan")


def in_new_process(work: Callable[..., Any], *arguments: Any, preload: str | None = None) -> Any:
    """The result of a call in its own process.

    Args:
        work: a function at module level.
        arguments: of the call; they are pickled.
        preload: a module that is imported before the process is forked, so that its import costs nothing.
    """
    context = get_context("forkserver" if preload else "spawn")
    if preload:
        context.set_forkserver_preload([preload])
        os.environ.setdefault("PYTHONWARNINGS", "ignore::RuntimeWarning:runpy")  # it runs the main module a second time
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(work, *arguments).result()
