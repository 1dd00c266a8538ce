"""Processes that tests start: their families, and ending them so that nothing is left over."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Sequence

import psutil


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def kill(processes: Sequence[psutil.Process]) -> None:
    """SIGKILL each of them, by its pid."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)


def end(process: subprocess.Popen[bytes], how: signal.Signals, seconds: float) -> list[psutil.Process]:
    """Ask a process to end, and kill it if it does not in time; returns what it left over, which is killed, too."""
    started = family(process.pid)
    process.send_signal(how)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _, left = psutil.wait_procs(started, timeout=10)
    kill(left)
    return left
